"""Plug-ins by file: our examples run from end to end; a stranger's mistakes are told by line."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rfabric as rfabric_face
from rfabric import plugins
from rfabric.cli import main
from rfabric.control.core import Core
from rfabric.control.fake import FakeSwitches
from rfabric.control.schema import pairs_request, plan_request
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, fabric_names, fat_tree, parse_fabric, rfabric
from rfabric.optics import POLICIES, Circuits, Demand, joined, parse_policy
from rfabric.optics.check import faults
from rfabric.rl.workload import read_recipe
from rfabric.routing import routes_of
from rfabric.routing.schemes import SCHEMES, SPLIT, Routing
from rfabric.schedulers.table import SCHEDULERS, Policies, parse_policies, scheduled, schedulers
from rfabric.specs import escaped
from rfabric.study.known import known

ROOT = Path(__file__).parents[1]
RING, ONE_PATH = ROOT / "controller" / "ring_policy.py", ROOT / "controller" / "one_path.py"
LONGEST, TORUS = ROOT / "traffic" / "longest_first.py", ROOT / "topologies" / "torus.py"


def told(capsys, *words):
    """The run that the command line tells of."""
    assert main(["simulate", "--traffic", "grpo-64", "--json", "-q", *words]) == 0
    return json.loads(capsys.readouterr().out)


def idle(fabric):
    return Demand.none(fabric.racks)


# --- the examples ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [RING, ONE_PATH, LONGEST, TORUS], ids=lambda f: f.stem)
def test_an_example_is_short(file):
    assert len(file.read_text().splitlines()) < 60


@pytest.mark.parametrize(
    ("words", "key", "file"),
    [
        (["--topo", f"{TORUS},rows=2,columns=8"], "fabric", TORUS),
        (["--topo", "rfabric", "--policy", f"{RING}:ring,skip=2"], "policy", RING),
        (["--topo", "fat-tree", "--routing", f"{ONE_PATH}:one-path"], "routing", ONE_PATH),
        (["--topo", "fat-tree", "--policy", f"{LONGEST}:longest-first"], "scheduler", LONGEST),
    ],
)
def test_an_example_runs_and_the_run_says_whose_file_it_was(words, key, file, capsys, tmp_path):
    summary = told(capsys, *words, "--out", str(tmp_path))
    assert summary["runs"][0][key] == words[-1]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert summary["versions"][str(file)] == f"sha256:{digest}"


def test_a_scheduler_and_a_policy_of_ones_own_go_together(capsys, tmp_path):
    both = f"{LONGEST}:longest-first+{RING}:ring,granularity=one-shot"
    assert parse_policies(both) == Policies(*both.split("+"))
    run = told(capsys, "--topo", "rfabric", "--policy", both, "--out", str(tmp_path))["runs"][0]
    assert [run["scheduler"], run["policy"]] == both.split("+")


@pytest.mark.parametrize(
    "spec", ["rfabric", "rfabric,pods=1,tors=5,gpus=2", "topoopt,servers=6", "rfabric,planes=6"]
)
def test_the_ring_passes_every_rack_once(spec):
    """An even ring closes, an odd one stays open at one place; walked along, it meets all racks."""
    fabric = parse_fabric(spec)
    lit = parse_policy(str(RING), fabric).decide(idle(fabric), Circuits(), 0.0).check(fabric)
    sides = list(joined(fabric, lit))
    n = len(fabric.racks)
    assert len(sides) == n - n % 2
    seen, left = {fabric.racks[0]}, {fabric.racks[0]}
    while left:
        left = {rack for side in sides if side & left for rack in side} - seen
        seen |= left
    assert seen == set(fabric.racks)
    assert parse_policy(str(RING), fabric).decide(idle(fabric), lit, 1.0) == lit


def test_on_one_path_pairs_of_two_racks_share_their_way():
    fabric = fat_tree()
    routes = routes_of(fabric, Circuits(), Routing(f"{ONE_PATH}:one-path"))
    ways = {routes.links(a, b)[1:-1] for a in ("h1", "h2", "h3") for b in ("h61", "h62")}
    assert len(ways) == 1
    pairs = [(a, b) for a in fabric.hosts[::5] for b in fabric.hosts[::7] if a != b]
    assert faults(fabric, Circuits(), pairs, Routing(str(ONE_PATH))) == []


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (4, 4), (2, 3), (2, 2)])
def test_in_a_torus_a_way_is_as_long_as_around_both_corners(rows, columns):
    fabric = parse_fabric(f"torus,rows={rows},columns={columns},gpus=1")
    across, down = (n if n > 2 else 1 for n in (columns, rows))  # two of a row are neighbours once
    assert len(fabric.links) == rows * columns + rows * across + columns * down
    for i, host in enumerate(fabric.hosts[1:], 1):
        down, right = divmod(i, columns)
        hops = min(down, rows - down) + min(right, columns - right)
        assert len(routes_of(fabric, Circuits()).path("h1", host)) == hops + 2


def test_a_scheduler_of_your_own_imports_from_one_door():
    ours = re.findall(r"^(?:from|import) (rfabric\S*)", LONGEST.read_text(), re.M)
    assert ours == ["rfabric.schedulers.base"]


def test_longest_first_deals_the_same_responses_no_worse_than_its_bound():
    """No replica has more than the average and one group: so Graham's rule, whatever the
    lengths.
    """
    w = read_recipe("grpo-64")
    own, plain = (scheduled(w, 3, name) for name in (f"{LONGEST}:longest-first", "sync"))
    for mine, theirs in zip(own.steps, plain.steps, strict=True):
        ours, recipe = (np.concatenate(step.generated.outputs) for step in (mine, theirs))
        assert sorted(ours.tolist()) == sorted(recipe.tolist())
        groups = recipe.reshape(-1, w.generation.group_size).sum(1)
        tokens = [mine.generated.response_tokens(r) for r in range(len(w.replicas))]
        assert max(tokens) <= sum(tokens) / len(tokens) + groups.max()
        assert own.facts["most_tokens_of_a_replica"][mine.number] == max(tokens)


# --- files that are wrong ----------------------------------------------------------------------

POLICY = (
    "from dataclasses import dataclass\nfrom rfabric.optics import CircuitPolicy, Circuit, "
    "Circuits\n"
) + (
    "class Mine(CircuitPolicy):\n    def decide(self, demand, circuits, now, upcoming=()):\n       "
    " {}\npolicies = {{'mine': Mine}}\n"
)
SCHEDULER = "def mine(w, seed, settings):\n    {}\nschedulers = {{'mine': mine}}\n"


def made_by(line):
    """A scheduler that makes the recipe as it stands, and then this of it."""
    head = "import numpy as np\nfrom dataclasses import replace\n"
    make = "from rfabric.schedulers.base import as_it_stands\n    made = as_it_stands(w, seed)"
    return head + SCHEDULER.format(f"{make}\n    {line}")


ROUTING = (
    "import numpy as np\ndef mine(choices, sent, rack, to):\n    {}\nroutings = {{'mine': mine}}\n"
)
WRONG = {
    "policy": [
        (
            "import nosuch",
            "mine.py, line 1: ModuleNotFoundError: No module named 'nosuch'; correct the file",
        ),
        ("x = 1\n)", "mine.py, line 2: SyntaxError"),
        ("raise SystemExit(3)", "mine.py, line 1: SystemExit: 3; correct the file"),
        (
            "fabrics = {}",
            "mine.py offers no policies = {name: class}; copy controller/ring_policy.py",
        ),
        ("policies = {'mine': print}", "is no CircuitPolicy; see controller/ring_policy.py"),
        ("policies = {'other': dict}", "mine.py has no policy 'mine'; it has other"),
        (
            POLICY.format("return 1 / 0"),
            "mine.py, line 5: ZeroDivisionError: division by zero; correct the file",
        ),
        (
            POLICY.format("return None"),
            "mine.py, line 4: mine returned None, no Circuits; see controller/ring_policy.py",
        ),
        (
            POLICY.format("return Circuits(frozenset([Circuit.parse('a1:1-a1:99')]))"),
            "mine.py, line 4: ",
        ),
        (
            POLICY.format("return circuits\n    def __init__(self, *a, **k): pass"),
            "mine.py, line 6: its __init__ keeps no fabric and name; see controller/ring_policy.py",
        ),
        (
            POLICY.format(
                "return circuits\n    granularity = 'time-slotted'\n"
                "    def cycle(self, demand, circuits): pass"
            ),
            "mine.py, line 7: mine returned None, no list; see controller/ring_policy.py",
        ),
        (
            POLICY.format(
                "return circuits\n    granularity = 'intra-collective'\n"
                "    def rounds(self, demand, circuits): return [None]"
            ),
            "mine.py, line 7: mine returned None, no list; see controller/ring_policy.py",
        ),
    ],
    "scheduler": [
        (
            "schedulers = {'mine': 3}",
            "mine.py offers no schedulers = {name: function}; copy traffic/longest_first.py",
        ),
        (
            SCHEDULER.format("return w.nothing"),
            "mine.py, line 2: AttributeError: 'Workload' object has no attribute",
        ),
        (SCHEDULER.format("return w"), "no Scheduled; see traffic/longest_first.py"),
        (
            made_by("return replace(made, trace=None)"),
            "mine.py, line 3: mine returned a Scheduled whose trace is None, no Trace; see traff",
        ),
        (
            made_by("return replace(made, steps=[None])"),
            "mine.py, line 3: mine returned a Scheduled whose steps are no tuple of Steps; see",
        ),
        (
            made_by("return replace(made, facts={'most': 3, 'tokens': np.int64(3)})"),
            "line 3: mine returned a Scheduled whose facts are no JSON: 'tokens': Object of type "
            "int64 is not JSON serializable; facts are text, numbers",
        ),
        (
            made_by("return replace(made, facts={'share': float('nan')})"),
            "whose facts are no JSON: 'share': Out of range float values",
        ),
        (made_by("return replace(made, facts=3)"), "whose facts is 3, no dict; see traffic/"),
    ],
    "routing": [
        ("x = 1", "mine.py offers no routings = {name: function}; copy controller/one_path.py"),
        (ROUTING.format("return rack[0, 0]"), "mine.py, line 3: IndexError"),
        (
            ROUTING.format("return None"),
            "mine.py, line 2: mine returned None, no ndarray; see controller/one_path.py",
        ),
        (
            ROUTING.format("return np.zeros(3)"),
            "mine.py, line 2: returned float64 of shape (3,), not whole numbers of shape (",
        ),
        (ROUTING.format("return np.zeros((len(rack), 2), int)"), "is no path from rack "),
        (ROUTING.format("return np.full((len(rack), 1), 10**9)"), "is no path from rack "),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "why"), [(k, *case) for k, cases in WRONG.items() for case in cases]
)
def test_a_file_that_breaks_is_told_by_its_line(kind, text, why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text)
    option = "--routing" if kind == "routing" else "--policy"
    named = {"scheduler": "mine.py:mine+static"}.get(kind, "mine.py:mine")
    code = main(["simulate", "--traffic", "grpo-64", "-q", "--topo", "rfabric", option, named])
    said = capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1 and "Traceback" not in said
    assert why in said


@pytest.mark.parametrize("name", ["upcoming", "plan"])
def test_a_policy_may_call_what_comes_as_it_likes(name, tmp_path):
    """It is given by place: a file that says `plan`, as all did once, is good as it stands."""
    file, fabric = tmp_path / "mine.py", parse_fabric("rfabric,pods=2,tors=2,gpus=2")
    answer = f"return circuits if {name} else Circuits()"
    file.write_text(POLICY.replace("upcoming", name).format(answer))
    policy = parse_policy(f"{file}:mine", fabric)
    lit = parse_policy("static", fabric).decide(idle(fabric), Circuits(), 0.0)
    assert policy.decide(idle(fabric), lit, 0.0, [idle(fabric)]) == lit != Circuits()
    assert policy.decide(idle(fabric), lit, 0.0) == Circuits()


@pytest.mark.parametrize(
    ("option", "file", "key"),
    [
        ("--topo", TORUS, "fabric"),
        ("--policy", RING, "policy"),
        ("--policy", LONGEST, "scheduler"),
        ("--routing", ONE_PATH, "routing"),
    ],
)
def test_a_path_may_hold_what_divides_words(option, file, key, tmp_path, capsys):
    odd = tmp_path / "a,b:c+d=e" / "mine+1.py"
    odd.parent.mkdir()
    odd.write_text(file.read_text())
    named = {
        TORUS: ":torus,rows=2,columns=8",
        RING: ":ring",
        LONGEST: "+static",
        ONE_PATH: ":one-path",
    }
    words = escaped(odd) + named[file]
    topo = [] if option == "--topo" else ["--topo", "rfabric"]
    summary = told(capsys, *topo, option, words, "--out", str(tmp_path / "runs"))
    assert summary["runs"][0][key] == words.removesuffix("+static")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert summary["versions"][str(odd)] == f"sha256:{digest}"


def test_a_path_that_is_written_bare_is_told_how_to_write_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for option, name in (("--topo", "a,b.py"), ("--topo", "a:b.csv"), ("--policy", "a+b.py")):
        Path(name).write_text(RING.read_text())
        assert main(["simulate", "-q", "--topo", "rfabric", option, name]) == 2
        assert f"{name} is a file whose name would be divided; write {escaped(name)}" in (
            capsys.readouterr().err
        )


def test_a_network_of_cables_and_a_fabric_as_json_may_have_such_names(tmp_path, capsys):
    cables = tmp_path / "my,network.csv"
    cables.write_text("a,b,rate\nx,leaf,1Gbit/s\ny,leaf,1Gbit/s\n")
    assert main(["topo", escaped(cables), "--json"]) == 0
    kept = tmp_path / "my,fabric.json"
    kept.write_text(capsys.readouterr().out)
    assert main(["topo", escaped(kept), "--json"]) == 0 and main(["check", str(cables)]) == 0
    assert len(parse_fabric(escaped(cables)).hosts) == len(rfabric_face.fabric(cables).hosts) == 2


def test_a_copied_file_that_hides_the_package_says_so(tmp_path):
    """`python -m rfabric` looks in the folder it stands in first."""
    shutil.copy(ROOT / "topologies" / "rfabric.py", tmp_path)
    for words in (["-m", "rfabric", "list"], ["-c", "import rfabric"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert "rfabric.py in this folder stands before the package" in done.stderr


@pytest.mark.parametrize("option", ["--policy", "--routing"])
def test_a_file_that_is_not_there_is_named(option, capsys):
    assert main(["simulate", "-q", "--topo", "fat-tree", option, "nowhere.py:x"]) == 2
    assert "file nowhere.py" in capsys.readouterr().err


def test_what_a_file_prints_is_talk(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("print('hello')\n" + TORUS.read_text())
    assert main(["topo", str(file), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["name"] == "torus" and said.err == "hello\n"


def test_a_builder_that_nobody_can_ask_for_its_settings_is_refused(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("fabrics = {'mine': type}\n")
    assert main(["topo", str(file)]) == 2
    assert "mine.py: ValueError: no signature found" in capsys.readouterr().err


def test_a_copied_example_leaves_no_relative_folder_to_import_from(tmp_path, monkeypatch):
    """The folder one stands in may hold a copied rfabric.py, and workers import rfabric anew."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != "."])
    copied = tmp_path / "mine.py"
    copied.write_text(TORUS.read_text())
    parse_fabric(str(copied))
    assert "." not in sys.path


def test_settings_of_a_policy_of_ones_own_are_checked():
    fabric = rfabric()
    with pytest.raises(
        RFabricError,
        match="'skp=2' is not a setting, did you mean skip.; .*granularity, slot, skip",
    ):
        parse_policy(f"{RING}:ring,skp=2", fabric)
    with pytest.raises(RFabricError, match="skip=x must be a whole number"):
        parse_policy(f"{RING}:ring,skip=x", fabric)
    with pytest.raises(RFabricError, match="no granularity 'daily'"):
        parse_policy(f"{RING}:ring,granularity=daily", fabric)


def test_an_edited_file_is_read_anew(tmp_path):
    file = tmp_path / "mine.py"
    for value in (3, 4, 3):  # the same size in the same second
        file.write_text(
            "from rfabric.fabric import ideal\ndef mine():\n    return "
            f"ideal({value})\nfabrics = {{'m': mine}}\n"
        )
        assert len(parse_fabric(str(file)).hosts) == value


def test_two_files_each_have_the_helper_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for pods in (2, 4):
        folder = tmp_path / f"v{pods}"
        folder.mkdir()
        (folder / "helper.py").write_text(f"PODS = {pods}\n")
        (folder / "mine.py").write_text(
            "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport helper\n"
            "from rfabric.fabric import parse_fabric\n"
            "fabrics = {'mine': lambda: parse_fabric(f'rfabric,pods={helper.PODS}')}\n"
        )
    made = [parse_fabric(f"{tmp_path}/v{pods}/mine.py") for pods in (2, 4, 2)]
    assert [len(fabric.hosts) for fabric in made] == [32, 64, 32]


def test_a_file_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(RING.read_text())
    parse_policy(str(file), rfabric())
    assert os.listdir(tmp_path) == ["mine.py"]


MIXED = SCHEDULER.format("return None") + "policies = {'ring': dict}\n"


@pytest.mark.parametrize(
    ("text", "spec", "verdict"),
    [
        (MIXED, "mine.py:mine", "scheduler"),
        (MIXED, "mine.py:ring", "circuits"),
        (MIXED, "mine.py+mine.py", "both"),
        (MIXED, "mine.py", "the file holds schedulers and circuit policies; name one"),
        (MIXED, "mine.py:rng", "mine.py has no policy 'rng', did you mean ring?; it has ring"),
        (SCHEDULER.format("return None"), "mine.py", "scheduler"),
    ],
)
def test_whether_a_file_schedules_or_chooses_circuits_is_read_from_its_tables(
    text, spec, verdict, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(text)
    own = {
        "scheduler": Policies(spec, "own"),
        "circuits": Policies("", spec),
        "both": Policies("mine.py", "mine.py"),
    }
    if verdict in own:
        assert parse_policies(spec) == own[verdict]
    else:
        with pytest.raises(RFabricError) as error:
            parse_policies(spec)
        assert verdict in str(error.value)


# --- the controller ----------------------------------------------------------------------------


def test_a_controller_runs_the_files_it_was_started_with_and_no_others(monkeypatch, tmp_path):
    fabric = rfabric(pods=2, tors=2, gpus=2)
    demand = {"racks": list(fabric.racks), "bytes": np.ones((4, 4)).tolist()}
    copied = tmp_path / "a:b,c.py"  # the files of the list are separated by colons
    copied.write_text(RING.read_text())
    body = {"policy": f"{escaped(copied)}:ring", "demand": demand}
    pairs = {"pairs": [["h1", "h8"]], "routing": f"{ONE_PATH}:one-path"}
    monkeypatch.delenv(plugins.LISTED, raising=False)
    for ask, data in ((plan_request, body), (pairs_request, pairs)):
        with pytest.raises(
            RFabricError,
            match="a controller runs only files it was started with; start it with RFABRIC",
        ):
            ask(data, fabric)
    for key, value in plugins.listing(body["policy"], pairs["routing"]).items():
        monkeypatch.setenv(key, value)
    assert pairs_request(pairs, fabric)[1].scheme == pairs["routing"]
    switches = FakeSwitches(fabric)
    core = Core(fabric, switches, switches.clock)
    core.connected(core.name_of)
    planned = core.plan(plan_request(body, fabric))
    assert planned[1].why


def test_names_of_ours_need_no_listing():
    assert (
        plugins.listing("demand", "placed", "orchestrrl+phase")
        == plugins.digests("demand", "fat-tree,k=4")
        == {}
    )


# --- what there is -----------------------------------------------------------------------------


def test_what_there_is_comes_from_the_tables_with_a_line_each():
    every = known()
    assert set(every["fabrics"]) == set(fabric_names()) >= set(BUILDERS)
    assert set(every["policies"]) == {"own", *POLICIES}
    assert set(every["schedulers"]) == set(schedulers()) > set(SCHEDULERS)
    assert set(every["routing"]) == {*SCHEMES, SPLIT}
    assert all(
        len(line) > 10 and "\n" not in line for lines in every.values() for line in lines.values()
    )
