"""Launch scripts: what bash itself makes of their variables, and what is asked for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.rl.imports.arithmetic import whole_number
from rfabric.rl.imports.settings import read_settings
from rfabric.rl.imports.shell import read_script
from rfabric.rl.imports.shell_text import readable, unknown_names

HERE = Path("/nowhere/run.sh")


def words(text: str, **environment: str) -> list[tuple[str, ...]]:
    return [command.words for command in read_script(HERE, text, environment).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1 B=$A; go $B", ["1"]),
        ('A="x y"; go $A "$A"', ["x", "y", "x y"]),
        ("go ${A:-${B:-8}} ${A-} ${A:+no}", ["8"]),
        ("A=3; go ${A:+yes} ${A:-no} $((A * 4 + 1))", ["yes", "3", "13"]),
        ("go $(( (1024 * 2 + 1) / 2 )) ${N:-$(((2 + 3) * 4))}", ["1024", "20"]),
        ("A=(1 'b c' 3); A+=(4); go ${#A[@]} \"${A[@]}\" ${A[1]}",
         ["4", "1", "b c", "3", "4", "b", "c"]),
        ("A=run.v2.sh; go ${A%.sh} ${A%%.*} ${A#*.} ${A##*.} ${A/v2/x} ${A^^} ${A:0:3}",
         ["run.v2", "run", "v2.sh", "sh", "run.x.sh", "RUN.V2.SH", "run"]),
        ("A=abcdef; L=(p q r); set -- m n; go ${A::2} ${A::-4} ${L[@]::2} ${L[*]::1} ${@:2}",
         ["ab", "ab", "p", "q", "p", "n"]),
        ("A='p q r'; go $(echo \"$A\" | cut -d' ' -f2) $(echo \"$A\" | cut -f 3 -d ' ')",
         ["q", "r"]),
        ("A='x \"y z\"'; eval set -- $A; go \"$2\" $#", ["y z", "2"]),
        ("case x235b in *30b*) T=1;; *235b|y) T=4;; *) T=9;; esac; go $T", ["4"]),
        ('if [ "$A" = 1 ]; then T=1; elif [[ 3 -gt 2 && -z $A ]]; then T=2; fi; go $T', ["2"]),
        ("X=; for i in a b; do X=$X$i; done; go ${X}", ["ab"]),
        ("for ((i=0; i<3; i++)); do A+=($i); done; go ${A[*]}", ["0", "1", "2"]),
        ("i=0; while (( i < 4 )); do i=$((i+1)); done; go $i", ["4"]),
        ("f() { local n=$1; go $((n * 2)); }; f 21", ["42"]),
        ("set -- a b c; shift; go $1 $# \"$@\"", ["b", "2", "b", "c"]),
        ("[ -n \"$A\" ] && T=1 || T=2; go $T", ["2"]),
        ("T=$(probe && echo npu || echo gpu); go $T", ["gpu"]),
        ("printf -v L '[%s]' \"$(IFS=,; echo 1)\"; go $L", ["[1]"]),
        ("go \\\n  --a \\\n  b # and not c", ["--a", "b"]),
        ("bash -c 'A=5; go $A'", ["5"]),
        ("srun -N 4 --container-image x bash -lc 'A=5; go $A'", ["5"]),
        ("COMMAND='A=5; go $A' CONTAINER=x sbatch --nodes=4 ray.sub", ["5"]),
        ("COMMAND='go $SLURM_NNODES' sbatch -N 4 ray.sub", ["4"]),
        ("#SBATCH --nodes=8 # all\n#SBATCH --gres=gpu:h100:4\n#SBATCH --nodelist=x12\n"
         "go ${SLURM_NNODES:-1} $SLURM_GPUS_ON_NODE ${SLURM_NTASKS:-no}", ["8", "4", "no"]),
        ("declare -A M=([a]=1 [\"b c\"]=$Z); M[d]=3; k=d; go ${M[$k]} \"${!M[@]}\" ${M[x]}0",
         ["3", "a", "b c", "d", "0"]),
        ("L=(p q); go \"${!L[@]}\"", ["0", "1"]),
        ("A=5; read -r -d '' V <<EOF\nx $A ${B:-3}\ny\nEOF\ngo \"$V\"", ["x 5 3\ny"]),
        ("A=5; V=$(cat <<'EOF'\nx $A\nEOF\n); go \"$V\"", ["x $A"]),
        ("A=5\nssh there bash <<EOF\ngo $A\nEOF\n", ["5"]),
        ("D=$(cd $(dirname $0) && pwd); go $(basename $0 .sh) $D", ["run", "/nowhere"]),
    ],
)  # fmt: skip
def test_words_of_a_command(text, expected):
    (command,) = words(text)
    assert [readable(word) for word in command[1:]] == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@pytest.mark.parametrize(
    "text",
    [
        "X=4; go data.{a=1,b=$X} {p,o}_off=1 '{a,b}' \"{a,b}\" {a} {} \\{a,b\\} {,x}y",
        "A=1; X=(n.{a=$A,b=$A,c=2}); go \"${X[@]}\" n.{a=$A,b} 'a=$A,b'",
        'X=(a=1 # b=2\n  # c=3\n  d=4); go "${X[@]}"',
        "go {1..4} a{1..3}b {a,b}{1,2} x{a,{b,c}}y {8..2..3} {01..03} {a..c} {1..b} {1..2",
        'for i in {1..3}; do A+=(x${i}{,y}); done; go "${A[@]}"',
        "declare -A C; C[t]=4; C[t]+=0; i=1; A=(4 5); A[i]=6; go $((C[t] * 2 + A[1])) ${C[t]:-1}",
        "declare -A C=([t]=4); A=(4 5); go ${C[t]:-1} ${C[u]:-2} ${A[1]-7} ${A[2]-8} ${C[t]:+y}",
        "set -- -n 4 -vt8 x -n 9; while getopts ':n:vt:' o; do case $o in n) N=$OPTARG;; "
        't) T=$OPTARG;; v) V=1;; esac; done; shift $((OPTIND-1)); go $N $T $V "$@"',
        "L=; set -- a b; for x; do L=$L$x; done; go $L",
        "IFS=',' read -ra P <<< a,b,c; read -r A B <<< '3 4 5'; go ${#P[@]} ${P[1]} $A \"$B\"",
        "let N=3+4 M=N*2; go $N $M $((2**5)) $((010)) $((1<<4)) $((5&3)) $((8>>1))",
        "f() { return 1; }; f || A=3; g() { [ $1 = a ]; return 0; }; if g b; then B=4; fi; go $A$B",
        "A=1; B=(1 2 3); unset A 'B[1]'; go ${A:-2} \"${B[@]}\"",
        "for i in 1 2 3; do if [ $i = 2 ]; then break; fi; A=$i; done; go $A",
        "A=; for i in 1 2 3; do [ $i = 2 ] && continue; A=$A$i; done; go $A",
        "A=; for i in 1 2; do for j in 0 1 2; do ((j)) && continue 2; A=$A$i$j; done; done; go $A",
        "i=0; while true; do i=$((i+1)); if ((i >= 3)); then break; fi; done; go $i",
        "A=2; (A=3; B=4); C=$(A=5; echo $A); go $A ${B:-no} $C",
        'A=(1 2); B=("${A[@]/#/x}"); go "${B[@]}" "${A[*]}" ${A[@]/2/3}',
        "A=Qwen-7B; N=2; go ${A/#Q/x} ${A/%7B/y} ${A: -2} ${A:N+1:2} ${A:N:-1} ${A:1}",
        "f() { go $N; }; N=1; N=4 f; N=5 eval 'go $N'; go $N",
        "go $(seq 1 2 5) $(printf '%02d' 3) $(printf '%s,' a b)",
        "if [[ qwen3-8b =~ ([0-9]+)b ]]; then go ${BASH_REMATCH[1]}; fi",
        "i=0; ((i++)) || A=3; ((++i)) && B=4; ((i--)); go $i $A $B $((i++ + ++i)) $i",
        "N=3; K=0; go $((M = N * 2, K += M)) $M $K $((N <<= 2)) $N $((N %= 5)) $N",
        "A=; for ((i = 0, j = 9; i < j; i += 2, j--)); do A=$A$i$j; done; go $A",
        "A=0; B=; C=; D=; E=; ((A && (B = 1))); ((!A || (C = 1))); "
        "((A ? (D = 1) : (E = 2))); go $B $C $D $E x",
        "go $((-7 / 2)) $((-7 % 3)) $((-2 ** 2)) $((2 ** 3 ** 0)) $((~5)) $((!5)) $((16#fF))",
        "case ab in a*) A=1 ;& x) B=2 ;;& *b) C=3 ;; *) D=4 ;; esac; go $A $B $C ${D:-none}",
    ],
)
def test_what_bash_makes_of_it(text):
    show = "go() { printf '%s\\n' \"$@\"; echo; }"
    ran = subprocess.run(
        ["bash", "-c", f"{show}\n{text}"], capture_output=True, text=True, timeout=20,
        env={"PATH": os.defpath},
    )  # fmt: skip
    told = "".join("\n".join([*command[1:], "", ""]) for command in words(text))
    assert told == ran.stdout and told


def test_braces_that_make_too_many_words():
    with pytest.raises(RFabricError, match="braces make more than 10,000 words"):
        words("go " + "{a,b}" * 20)
    with pytest.raises(RFabricError, match="braces make more than 10,000 words"):
        words("go {1..99999999}")


def test_what_the_environment_says_goes_before_what_slurm_would_say():
    assert words("#SBATCH --nodes=8\ngo $SLURM_NNODES", SLURM_NNODES="2") == [("go", "2")]


def test_a_script_that_sbatch_is_given(tmp_path):
    (tmp_path / "job.sub").write_text("#SBATCH --nodes=8\ngo $SLURM_NNODES $SLURM_NTASKS\n")
    script = read_script(tmp_path / "run.sh", "sbatch -n 3 -N 2 job.sub", {})
    assert [command.words for command in script.commands] == [("go", "2", "3")]


def test_what_is_unknown_keeps_its_name():
    ((_, gpus, host),) = words("go $WORLD_SIZE $(hostname)")
    assert (readable(gpus), unknown_names(gpus)) == ("$WORLD_SIZE", ["WORLD_SIZE"])
    assert (readable(host), unknown_names(host)) == ("$(hostname)", [])
    assert words("go $WORLD_SIZE", WORLD_SIZE="16") == [("go", "16")]


@pytest.mark.parametrize(
    "expansion",
    ["${T[$B]:-2}", "${T[$B]}", "${L[$B]:-9}", "${L[@]:${B}:1}", "${L:${B}:1}", "${T2[32b]:-2}"],
)
def test_an_element_that_cannot_be_told_is_unknown(expansion):
    """The default of ${T[$B]:-2} is for a key that is known not to be there."""
    table = "B=$(size_of model); declare -A T=([32b]=4) T2=([$B]=4); L=(1 2 3); "
    (said,) = [c for c in words(f"{table}go {expansion}") if c[0] == "go"]
    assert len(said) == 2 and readable(said[1]).startswith("$(")
    assert words("declare -A T; go ${T[$(size_of model)]:-2}")[-1] == ("go", "2")


def test_defaults_are_told_and_conditions_that_programs_decide():
    script = read_script(HERE, "N=${NNODES:-4}\nif [ $(probe) = 1 ]; then N=9; fi\ngo $N")
    assert script.defaulted == {"NNODES": "4"} and script.commands[-1].words == ("go", "4")
    assert any("line 2" in note and "cannot be known" in note for note in script.notes)


def test_a_file_beside_the_script_is_sourced(tmp_path):
    (tmp_path / "scripts" / "models").mkdir(parents=True)
    (tmp_path / "scripts" / "models" / "m.sh").write_text("ARGS=(--num-layers 48)\n")
    script = tmp_path / "examples" / "run.sh"
    script.parent.mkdir()
    script.write_text(
        'source "/workspace/slime/scripts/models/m.sh"\npython train.py ${ARGS[@]} --x 1\n'
    )
    assert read_settings(script).values == {"num-layers": 48, "x": 1}
    script.write_text("source none.sh\npython train.py --x 1\n")
    assert "none.sh: not found beside the script" in " ".join(read_settings(script).notes)


def test_a_script_that_another_is_run_by(tmp_path):
    (tmp_path / "inner.sh").write_text("N=${N:-2}\npython train.py a=$1 nodes=$N\n")
    (script := tmp_path / "run.sh").write_text("N=4\nbash inner.sh 7\n")
    assert read_settings(script).values == {"a": 7, "nodes": 2}  # N is not exported
    script.write_text("export N=4; bash inner.sh 7\n")
    assert read_settings(script).values == {"a": 7, "nodes": 4}
    script.write_text("bash missing.sh trainer.nnodes=4\n")
    with pytest.raises(RFabricError, match="sets nothing.*bash missing.sh: not found near"):
        read_settings(script)


def test_the_command_that_sets_most_is_the_job(tmp_path):
    (script := tmp_path / "run.sh").write_text(
        "python fetch.py --out 1\nray start --head\npython -m train a.b=1 c=2 d=3\necho done=1\n"
    )
    assert read_settings(script).values == {"a.b": 1, "c": 2, "d": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f() { f; }; f", "more than 40 deep"),
        ("A=x; while true; do A=$A$A; done", "grow beyond"),
        ("while true; do for i in 1 2 3 4 5 6 7 8 9; do while true; do X=1; done; done; done",
         "more than 200,000"),
        ("A=(1 2", "line 1: a quote or bracket is opened and not closed"),
    ],
)  # fmt: skip
def test_scripts_without_end(text, message):
    with pytest.raises(RFabricError, match=message):
        read_script(HERE, text)


def test_nothing_is_run(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("here")
    script = f"rm {victim}; A=$(rm {victim}); eval 'rm {victim}'; : > {victim}; `rm {victim}`; go"
    assert words(script)[-1] == ("go",) and victim.read_text() == "here"


# --- beside bash ----------------------------------------------------------------------------------

NAMES = st.sampled_from(["A", "B", "C"])
PLAIN = st.text("abx12./- ", max_size=6)
NUMBERS = st.recursive(
    st.integers(0, 99).map(str) | NAMES.map(lambda name: f"N{name}"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([*"+-*<>|&^", "==", "&&", "||"]), inner).map(
            lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(NAMES, st.sampled_from(["=", "+=", "-="]), inner).map(
            lambda parts: f"(N{parts[0]} {parts[1]} {parts[2]})"
        ),
        st.tuples(st.sampled_from(["!", "-", "~"]), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda parts: "({} ? {} : {})".format(*parts)),
        NAMES.map(lambda name: f"N{name}++"),
        NAMES.map(lambda name: f"(--N{name})"),
    ),
    max_leaves=5,
)
EXPANSIONS = st.one_of(
    NAMES.map(lambda name: f"${{{name}}}"),
    st.tuples(NAMES, st.sampled_from([":-", "-", ":+", "+"]), st.text("ab1", max_size=4)).map(
        lambda parts: f"${{{parts[0]}{parts[1]}{parts[2]}}}"
    ),
    st.tuples(
        NAMES, st.sampled_from(["%", "%%", "#", "##"]), st.sampled_from(["*a", "a*", "?", "1"])
    ).map(lambda parts: f"${{{parts[0]}{parts[1]}{parts[2]}}}"),
    NAMES.map(lambda name: f"${{#{name}}}"),
    NUMBERS.map(lambda number: f"$(({number}))"),
)  # fmt: skip
WORDS = st.lists(st.one_of(st.text("ab1/", max_size=3), EXPANSIONS), min_size=1, max_size=3).map(
    "".join
)
STATEMENTS = st.one_of(
    st.tuples(NAMES, PLAIN).map(lambda parts: f"{parts[0]}='{parts[1]}'"),
    st.tuples(NAMES, WORDS).map(lambda parts: f'{parts[0]}="{parts[1]}"'),
    st.tuples(NAMES, WORDS).map(lambda parts: f'{parts[0]}+="{parts[1]}"'),
    st.tuples(NAMES, NUMBERS).map(lambda parts: f"N{parts[0]}=$(({parts[1]}))"),
    st.tuples(WORDS, st.sampled_from(["a*", "*1*", "?", "b"]), NAMES).map(
        lambda parts: f'case "{parts[0]}" in {parts[1]}) {parts[2]}=p ;; *) {parts[2]}=q ;; esac'
    ),
    st.tuples(NAMES, WORDS, NAMES).map(
        lambda parts: (
            f'if [ "${parts[0]}" = "{parts[1]}" ]; then {parts[2]}=y; else {parts[2]}=n; fi'
        )
    ),
)  # fmt: skip


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
@settings(max_examples=60, deadline=None)
@given(statements=st.lists(STATEMENTS, max_size=8), last=st.lists(WORDS, min_size=1, max_size=3))
def test_it_says_what_bash_says(statements, last):
    """Scripts of assignments, expansions, arithmetic, case and if, drawn at random."""
    begin = ["A=aab1", "B=", "C='a 1'", "NA=3", "NB=0", "NC=12"]
    shown = " ".join(f'"{word}"' for word in last)
    text = "\n".join([*begin, *statements, f"printf '%s\\0' {shown} $A"])
    ran = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, env={"PATH": os.defpath}, timeout=20
    )
    (command,) = words(text.replace("printf '%s\\0'", "go"))
    assert ran.returncode == 0, ran.stderr
    assert list(command[1:]) == ran.stdout.split("\0")[:-1]


@given(st.text("0123456789+-*/%()<>=!&|? :", max_size=30))
def test_arithmetic_is_a_number_or_nothing(text):
    value = whole_number(text)
    assert value is None or isinstance(value, int)
