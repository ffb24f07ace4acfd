"""Files that their authors did not choose: cut, flipped, doubled, swapped, with huge numbers in
them. They mean the same as before, or are refused by an error of the house.
"""

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.compute import load_model
from rfabric.errors import RFabricError
from rfabric.fabric import Fabric, parse_fabric, rfabric
from rfabric.files import parse_json, parse_yaml, read_text
from rfabric.folders import data_dir
from rfabric.rl import read_recipe
from rfabric.trace import TraceBuilder, read_trace, write_trace

SAMPLES = Path(__file__).parents[2] / "shared" / "data" / "configs"
CSV = """# rfabric-trace 1
# window training/0: 2.5
id,src,dst,size_bytes,start_s,after,gap_s,step,phase,label
0,h1,h9,4000,0,,0,0,training,a
1,h1,h13,40000,0.1,0,0.5,0,training,b
"""
PARTS = ("0", "9" * 400, "9" * 5000, "1e999", "-1", "nan", "[", "{", '"', ",", ":", "\n", "\0")
MORE = (
    "\x1b[5m",
    "\ufeff",
    "é",
    "null",
    "true",
    "x" * 3000,
    "[" * 3000,
    "\r\n",
    "- ",
    "&a *a",
    "%",
)


@st.composite
def mutants(draw, text):
    """`text` with a few places cut, doubled, swapped, flipped or written over."""
    for _ in range(draw(st.integers(1, 3))):
        a, b = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        how = draw(st.sampled_from(("cut", "end", "double", "swap", "flip", "write", "write")))
        middle = text[a : min(b, a + 60)]
        rest = text[a + len(middle) :]
        text = {
            "cut": lambda a=a, rest=rest, text=text: text[:a] + rest,
            "end": lambda a=a, text=text: text[:a],
            "double": lambda a=a, m=middle, rest=rest, text=text: text[:a] + m + m + rest,
            "swap": lambda a=a, m=middle, rest=rest, text=text: text[:a] + rest + m,
            "flip": lambda a=a, text=text: (
                text[:a] + (chr(ord(text[a]) ^ 1) if a < len(text) else "") + text[a + 1 :]
            ),
            "write": lambda a=a, text=text: (
                text[:a] + draw(st.sampled_from(PARTS + MORE)) + text[a:]
            ),
        }[how]()
    return text


def fabric_text():
    return json.dumps(rfabric(pods=1, tors=2, gpus=1, planes=1).to_json(), indent=0)


def shipped(*names):
    return data_dir("traffic").joinpath(*names).read_text(encoding="utf-8")


def tried(read, suffix, text):
    """What `read` makes of a file with this text; None where the house refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"mutant{suffix}")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            return read(path)
        except RFabricError as error:
            assert str(error) and len(str(error)) < 20000
            return None


@settings(max_examples=150, deadline=None)
@given(mutants(CSV))
def test_a_mutant_trace_is_read_whole_or_refused(text):
    trace = tried(read_trace, ".csv", text)
    if trace is not None:  # what was read is read again
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "again.csv")
            write_trace(trace, path)
            again = read_trace(path)
        assert again.hosts == trace.hosts and (again.size == trace.size).all()


@settings(max_examples=100, deadline=None)
@given(mutants(fabric_text()))
def test_a_mutant_fabric_is_read_or_refused(text):
    fabric = tried(lambda path: parse_fabric(str(path)), ".json", text)
    assert fabric is None or Fabric.from_json(json.dumps(fabric.to_json())).to_json()


@settings(max_examples=60, deadline=None)
@given(mutants(shipped("grpo-64.yaml")))
def test_a_mutant_recipe_is_read_or_refused(text):
    tried(lambda path: read_recipe(str(path)), ".yaml", text)


@settings(max_examples=100, deadline=None)
@given(mutants(shipped("models", sorted(os.listdir(data_dir("traffic") / "models"))[0])))
def test_a_mutant_config_is_read_or_refused(text):
    tried(lambda path: load_model(str(path)), ".json", text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "too deep"),
        ('{"a":' * 100_000, "too deep"),
        ("9" * 400, "400 digits"),
        ("9" * 5000, "5000 digits"),
        ("1e400", "beyond 1e308"),
        ('{"a": 1, "a": 2}', "key 'a' stands twice"),
    ],
)
def test_json_that_says_too_much_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "too deep"),
        ("a: " + "9" * 5000, "5000 digits"),
        ("{a: 1, b: 2, a: 3}", "key a stands twice"),
        ("a: &x 1\nb: *x", "aliases are not read"),
        ("a: 2001-99-99", "month"),
    ],
)
def test_yaml_that_says_too_much_is_refused(text, said):
    with pytest.raises(RFabricError, match=said):
        parse_yaml(text)


@pytest.mark.parametrize("size", ["1.5", "1e-9", "9007199254740993", "nan", "9" * 400])
def test_a_size_is_never_rounded(tmp_path, size):
    path = tmp_path / "mine.csv"
    path.write_text(CSV.replace("40000", size))
    with pytest.raises(RFabricError, match="size_bytes"):
        read_trace(path)


@pytest.mark.parametrize(
    "name", ["h" + "1" * 1_000_000, "h\x1b[31m", "h\x07"], ids=("long", "escape", "bell")
)
def test_a_name_is_short_and_printed_as_it_is(tmp_path, name):
    path = tmp_path / "mine.csv"
    path.write_text(CSV.replace("h13", name))
    with pytest.raises(RFabricError, match="is no name: 1000 characters at most") as error:
        read_trace(path)
    assert len(str(error.value)) < 500


def test_a_packed_trace_is_read_by_its_first_bytes(tmp_path):
    data = CSV.encode()
    for name, packed in (("a.csv.gz", gzip.compress(data)), ("b.csv", gzip.compress(data))):
        (tmp_path / name).write_bytes(packed)
        assert len(read_trace(tmp_path / name)) == 2
    (tmp_path / "cut.csv").write_bytes(gzip.compress(data)[:-12])
    with pytest.raises(RFabricError, match="damaged gzip file"):
        read_trace(tmp_path / "cut.csv")


def test_a_trace_packed_by_zstd_is_read_and_one_cut_short_refused(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.compress(CSV.encode())
    (tmp_path / "a.csv.zst").write_bytes(packed + packed[:0])
    assert len(read_trace(tmp_path / "a.csv.zst")) == 2
    (tmp_path / "cut.csv").write_bytes(packed[:-9])
    with pytest.raises(RFabricError, match="damaged zstd file"):
        read_trace(tmp_path / "cut.csv")


def test_what_is_no_text_file_is_refused(tmp_path):
    (tmp_path / "wide").write_text(CSV, encoding="utf-16")
    (tmp_path / "nul").write_text("a\0b")
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("wide", "UTF-16"), ("nul", "NUL"), ("pipe", "a pipe or a device")):
        with pytest.raises(OSError, match=said):
            read_text(tmp_path / name)


def test_a_list_is_no_number_of_layers(tmp_path):
    models = data_dir("traffic") / "models"
    config = json.loads((models / sorted(os.listdir(models))[0]).read_text())
    key = next(k for k in ("num_hidden_layers", "n_layer", "num_layers") if k in config)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {key: [1]}))
    with pytest.raises(RFabricError, match=f"{key} .* must be a whole number"):
        load_model(str(path))


# --- the command line -----------------------------------------------------------------------------


def rfabric_sh(words, folder):
    """(exit code, stderr) of a shell's command line, in which `rfabric` is this one."""
    path = os.pathsep.join((str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        ["bash", "-c", words.replace("rfabric ", f"{sys.executable} -m rfabric ", 1)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("rfabric list >&-", 2, "stdout is closed"),
        ("rfabric list >/dev/full", 2, "cannot write to stdout: No space left on device"),
        ("rfabric --help >/dev/full", 2, "cannot write to stdout: No space left on device"),
        ("set -o pipefail; sleep 0; rfabric list | head -0", 141, ""),
    ],
)
def test_a_stdout_that_takes_nothing_ends_in_one_line(tmp_path, words, code, said):
    returned, error = rfabric_sh(words, tmp_path)
    assert returned == code and said in error and "Traceback" not in error
    assert error.count("\n") <= 1


@pytest.mark.parametrize("words", ["rfabric list <&-", "rfabric list <&- 2>&-"])
def test_closed_files_of_a_process_are_stood_in_for(tmp_path, words):
    assert rfabric_sh(words, tmp_path) == (0, "")


def jobs():
    return [p for p in sorted(SAMPLES.rglob("*")) if p.suffix in (".yaml", ".yml", ".sh")]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no sample jobs beside the checkout")
@pytest.mark.parametrize("seed", range(12))
def test_a_mutant_job_is_imported_or_refused(tmp_path, capsys, seed):
    """A key removed, a value of another type, a model that is not known."""
    rng = random.Random(seed)
    job = rng.choice(jobs())
    lines = job.read_text(encoding="utf-8").splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        head = lines[at].partition(":" if ":" in lines[at] else "=")
        lines[at] = rng.choice(
            (
                "",
                head[0] + head[1] + " [1, {a: b}]",
                head[0] + head[1] + " nobody/knows-1B",
                "x: -1",
            )
        )
    path = tmp_path / job.name
    path.write_text("\n".join(lines))
    framework = job.relative_to(SAMPLES).parts[0]
    assert main(["import", framework, str(path), "-o", str(tmp_path / "made.yaml")]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_what_was_written_can_be_read(tmp_path):
    builder = TraceBuilder(["h1", "h2"])
    builder.flows([0], [1], 2**53 - 1, label="large")
    write_trace(builder.build(), tmp_path / "large.csv")
    assert read_trace(tmp_path / "large.csv").size.tolist() == [2**53 - 1]
