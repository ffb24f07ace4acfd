"""`import rfabric`: the face of the library; words and objects are both taken, and mean the
same.
"""

import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import rfabric
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.optics import Circuit, CircuitPolicy, Circuits, parse_policy
from rfabric.report.tables import FLOW_COLUMNS
from rfabric.specs import escaped
from rfabric.trace import read_trace

ROOT = Path(__file__).parents[2]
SMALL = "rfabric,pods=2,tors=2,planes=1"
TRACE = """id,src,dst,size_bytes,after,gap_s,phase
0,h1,h1,0,,2.5,training
1,h1,h9,4000000000,0,,training
2,h9,h1,4000000000,0,,training
3,h1,h13,2000000000,1 2,,weight_sync
"""


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(TRACE)
    return file


@pytest.fixture
def compared(mine):
    return rfabric.compare(["fat-tree,pods=2,tors=2", SMALL], mine, ["static", "demand"])


def test_every_name_of_the_face_is_there_and_says_what_it_is():
    assert set(rfabric.__all__) <= set(dir(rfabric))
    for name in rfabric.__all__:
        assert callable(getattr(rfabric, name)), name
        assert isinstance(getattr(rfabric, name), type) == name[0].isupper()
    with pytest.raises(AttributeError, match="'rfabric' has no attribute 'fabrik'"):
        _ = rfabric.fabrik


@pytest.mark.parametrize(
    "first", ["import rfabric.fabric", "from rfabric.trace import Trace", "pass"]
)
def test_a_room_is_a_verb_whenever_it_was_imported(first):
    nouns = "rfabric.fabric.Node.__name__, rfabric.trace.Trace.__name__"
    code = f"import rfabric; {first}\nprint(rfabric.fabric('{SMALL}').spec, {nouns})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [SMALL, "Node", "Trace"]


def test_words_and_objects_mean_the_same(mine):
    fabric, trace = rfabric.fabric(SMALL), rfabric.trace(mine)
    assert fabric == parse_fabric(SMALL) and rfabric.fabric(fabric) is fabric
    assert len(trace) == len(read_trace(mine))
    words = rfabric.simulate(SMALL, str(mine), "demand", seed=3)
    objects = rfabric.simulate(fabric, trace, parse_policy("demand", fabric), seed=3)
    assert np.array_equal(words.result.finish, objects.result.finish)
    assert (
        (words.result.policy, words.result.seed)
        == (objects.result.policy, objects.result.seed)
        == ("demand", 3)
    )


def test_a_policy_of_ones_own_decides(mine):
    """One that keeps the first circuits it sees: no rewire, where `demand` makes some."""

    class Still(type(parse_policy("demand", rfabric.fabric(SMALL)))):
        def decide(self, demand, circuits, now, upcoming=()):
            return circuits

        def options(self, demand, circuits):
            return [circuits]

    fabric = rfabric.fabric(SMALL + ",delay=1ms")
    still = rfabric.simulate(fabric, mine, Still(fabric, "still", "per-phase", 0.1))
    assert still.result.policy == "still" and not still.result.rewires
    assert rfabric.simulate(fabric, mine, "demand").result.rewires


def test_a_recipe_by_name_or_object_is_one_job():
    job = rfabric.recipe("grpo-64", "training.pp=2")
    assert rfabric.recipe(job) is job and job.training.pp == 2
    by_name, by_object = rfabric.trace("grpo-64", "training.pp=2"), rfabric.trace(job)
    assert np.array_equal(by_name.size, by_object.size) and np.array_equal(
        by_name.start, by_object.start
    )


def test_each_says_in_a_line_what_came_out(compared):
    for shown in (compared[2], compared[2].result, compared):
        assert repr(shown).count("\n") == 0 and "mine" in repr(shown)
    assert re.fullmatch(
        (
            r"<simulate mine on rfabric.*, policy demand, seed 0: step \d+\.\d{3} s, .*\d+ "
            r"rewires>"
        ),
        repr(compared[2]),
    )
    assert "fat-tree" in repr(compared) and "rfabric demand" in repr(compared)


def test_tables_hold_the_figures_of_the_run(compared):
    rows = list(compared.rows())
    assert [row["label"] for row in rows] == ["fat-tree", "rfabric static", "rfabric demand"]
    for row, run in zip(rows, compared, strict=True):
        assert row["step_s"] == run.step_seconds and row["exposed_s"] == pytest.approx(
            run.exposed_seconds
        )
        assert {"training_s", "weight_sync_exposed_s", "network_usd"} <= set(row)


def test_to_pandas_has_a_row_a_flow_or_a_run(compared):
    pandas = pytest.importorskip("pandas")
    flows, runs = compared[0].to_pandas(), compared.to_pandas()
    assert isinstance(flows, pandas.DataFrame) and tuple(flows.columns) == FLOW_COLUMNS
    assert len(flows) == 4 and flows.finish_s.max() == compared[0].step_seconds
    assert list(runs.step_s) == [run.step_seconds for run in compared]


def test_a_run_folder_has_its_tables_as_parquet_too(compared, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pandas = pytest.importorskip("pandas")
    folder = compared.save(tmp_path / "run")
    assert parquet.read_table(folder / "summary.parquet").to_pylist() == list(compared.rows())
    places = sorted(path.parent for path in folder.glob("*/flows.csv"))
    assert len(places) == len(compared)
    for place in places:
        for name in ("flows", "links"):
            ours = parquet.read_table(place / f"{name}.parquet").to_pandas()
            theirs = pandas.read_csv(place / f"{name}.csv", keep_default_na=False)
            # utilisation stands there with six digits
            pandas.testing.assert_frame_equal(
                ours, theirs, check_dtype=False, check_categorical=False, atol=1e-6
            )
    assert len(rfabric.read_run(folder)) == len(compared)


def test_without_pyarrow_there_is_the_csv_alone(compared, tmp_path, monkeypatch):
    monkeypatch.setattr("rfabric.report.parquet.find_spec", lambda _: None)
    folder = compared.save(tmp_path / "run")
    assert not list(folder.rglob("*.parquet")) and list(folder.rglob("flows.csv"))


def test_without_pandas_it_says_what_to_install(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RFabricError, match=r"to_pandas needs pandas; install rfabric\[pandas\]"):
        compared.to_pandas()


def test_what_is_saved_is_read_back(compared, tmp_path, mine):
    folder = compared.save(tmp_path / "kept")
    assert (folder / "inputs/mine.csv").read_text() == TRACE and (folder / "report.html").is_file()
    again = rfabric.read_run(folder)
    assert list(again.rows()) == list(compared.rows()) and repr(again) == repr(compared)
    assert again[0].inputs == (folder / "inputs/mine.csv",)
    assert compared[1].save(tmp_path / "one").joinpath("simulate-rfabric").is_dir()
    with pytest.raises(RFabricError, match="it is there already; choose another name"):
        compared.save(folder)


def test_pictures_are_figures(compared):
    from matplotlib.figure import Figure

    for made in (compared[2].plot(), compared.plot()):
        assert isinstance(made, Figure) and made.axes


def test_a_picture_goes_into_the_file_that_is_named(compared, tmp_path):
    for number, shown in enumerate((compared[2], compared)):
        file = tmp_path / f"{number}.png"
        assert shown.plot(file).axes and file.read_bytes()[1:4] == b"PNG"
        assert file.stat().st_size > 10_000
    with pytest.raises(RFabricError, match="cannot write None: give a path"):
        compared.plot(None)
    with pytest.raises(RFabricError, match="cannot write .*none/x.png"):
        compared.plot(tmp_path / "none/x.png")


def test_pandas_and_matplotlib_are_loaded_where_they_are_asked_for(mine):
    code = (
        "import sys, rfabric\n"
        f"run = rfabric.simulate('ideal', {str(mine)!r})\n"
        "print(repr(run)); print(*({'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line, loaded = done.stdout.splitlines()
    assert line.startswith("<simulate mine on ideal") and loaded == ""


def test_what_is_read_of_packets_keeps_their_simulation(compared, tmp_path):
    from dataclasses import replace

    run = replace(compared[1], simulated=compared[2].result)
    again = rfabric.read_run(run.save(tmp_path / "kept"))[0]
    assert again.simulated.step_seconds == compared[2].step_seconds
    assert again.save(tmp_path / "anew").joinpath("simulate-rfabric/simulated/run.json").is_file()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda t: rfabric.fabric("fat-tre"), "did you mean fat-tree?"),
        (lambda t: rfabric.trace(t, scheduler="orchestrrl"), "schedules recipes; a trace is given"),
        (lambda t: rfabric.trace(t, "training.pp=2"), r"recipe\(NAME, 'training.pp=2'\)"),
        (lambda t: rfabric.simulate("fat-tree", t, "best"), "no policy named 'best'"),
        (
            lambda t: rfabric.compare("fat-tree", "grpo-64", ["sync", "async"]),
            "one run has one compute scheduler",
        ),
        (lambda t: rfabric.simulate("fat-tree,pods=2,tors=1,gpus=1", t), "the fabric has 2 hosts"),
    ],
)
def test_what_cannot_be_run_says_why(mine, ask, said):
    with pytest.raises(RFabricError, match=said):
        ask(rfabric.trace(mine))


def test_an_object_decides_in_its_own_process_alone(mine):
    from rfabric.study.run import Case, check

    fabric = rfabric.fabric(SMALL)
    with pytest.raises(
        RFabricError, match="policy demand is an object of this process.*simulate it"
    ):
        check(Case(fabric, parse_policy("demand", fabric)), "emulate")


def test_the_script_of_the_readme_runs(tmp_path):
    """Its block in Python, in an empty folder."""
    (script,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert script.count("\n") <= 10
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "<Comparison of grpo-64" in done.stdout and (tmp_path / "mine/summary.json").is_file()


class Bare:
    """A policy that only decides."""

    def decide(self, demand, circuits, now, upcoming=()):
        return circuits


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (lambda t: rfabric.trace(None), "traffic None: give a name, a path"),
        (lambda t: rfabric.simulate(SMALL, [t]), "give a name, a path, a Workload"),
        (lambda t: rfabric.simulate(SMALL, t, None), "policy None lacks name, granularity"),
        (lambda t: rfabric.simulate(SMALL, t, Bare()), "lacks name, granularity, slot, options"),
        (lambda t: rfabric.simulate(SMALL, t, CircuitPolicy), "; derive it from rfabric.optics"),
        (lambda t: rfabric.compare([], t), "no fabric is given"),
        (lambda t: rfabric.compare(SMALL, t, []), "no policy is given"),
        (lambda _: rfabric.fabric("rfabric", "many"), "gpus 'many' must be a whole number"),
        (lambda _: rfabric.fabric("rfabric", -1), "gpus -1 must be a whole number"),
        (lambda t: rfabric.simulate(SMALL, t, seed=-1), "seed -1 must be a whole number"),
        (lambda t: rfabric.simulate(SMALL, t, seed=None), "seed None must be"),
        (lambda t: rfabric.trace("grpo-64", seed=1.5), "seed 1.5 must be"),
        (lambda t: rfabric.simulate(SMALL, t, routing=None), "routing None: give its name"),
        (lambda t: rfabric.simulate(SMALL, t, in_flight=None), "in-flight policy None is not"),
        (lambda t: rfabric.simulate(SMALL, t, repetitions=[]), "repetitions []: give its name"),
        (lambda t: rfabric.simulate(SMALL, t, tell=3), "tell 3: give a function"),
        (lambda t: rfabric.emulate(SMALL, t, sample="x"), "sample 'x' must be a number from 0"),
        (lambda t: rfabric.emulate(SMALL, t, out=None), "out None: give a path"),
        (lambda _: rfabric.fabric(None), "fabric None: give a name, a path or a Fabric"),
        (lambda t: rfabric.compare({"fat-tree"}, t), "fabric {'fat-tree'}: give a name, a path"),
        (lambda _: rfabric.fabric("a\0.csv"), "embedded null byte"),
        (lambda _: rfabric.recipe(3), "recipe 3: give a name, a path or a Workload"),
        (lambda _: rfabric.recipe("a\0.yaml"), "cannot be read: embedded null byte"),
        (lambda _: rfabric.recipe("x", 3), "setting 3: write text, such as 'training.pp=2'"),
        (lambda _: rfabric.trace("grpo-64", None), "setting None: write text"),
        (lambda _: rfabric.trace("grpo-64", scheduler=3), "scheduler 3: give its name"),
        (lambda _: rfabric.read_run(None), "run folder None: give a path"),
        (lambda t: rfabric.simulate(SMALL, t).save(None), "cannot write None: give a path"),
        (lambda _: read_trace(None), "trace None: give a path, as text or a Path"),
        (
            lambda t: rfabric.recipe(rfabric.recipe("grpo-64"), "training.pp=2"),
            "training.pp=2: settings go over the name of a recipe",
        ),
    ],
)
def test_what_no_verb_can_take_is_refused_by_name(asked, why, mine):
    with pytest.raises(RFabricError, match=re.escape(why)):
        asked(mine)


@dataclass(frozen=True)
class Says(CircuitPolicy):
    """Gives this answer, whatever is sent."""

    answer: object = None

    def decide(self, demand, circuits, now, upcoming=()):
        if self.answer == "breaks":
            raise ZeroDivisionError("my own")
        return self.answer


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"answer": None}, ": says returned None, no Circuits; see controller/ring"),
        ({"answer": "breaks"}, ": ZeroDivisionError: my own; correct the file"),
        ({"answer": Circuits(frozenset([Circuit.parse("a1:1-a1:99")]))}, ": says: circuit a1:1"),
        ({"granularity": "daily"}, "policy says: no granularity 'daily'"),
        ({"granularity": "time-slotted", "slot": -1.0}, "policy says: slot -1 s must be longer"),
        ({"slot": "1s"}, "policy says: slot '1s' must be a number of seconds"),
        ({"name": 3}, "policy 3: its name must be text"),
        ({"fabric": rfabric.fabric("rfabric")}, "was made for rfabric, and is to rewire rfabric,"),
    ],
)
def test_an_object_is_guarded_as_a_file_is(settings, why, mine):
    fabric = rfabric.fabric(SMALL)
    policy = Says(**{"fabric": fabric, "name": "says"} | settings)
    with pytest.raises(RFabricError, match=re.escape(why)):
        rfabric.simulate(fabric, mine, policy)


def test_the_line_of_an_object_that_breaks_is_named(mine):
    fabric = rfabric.fabric(SMALL)
    lines = Path(__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if 'ZeroDivisionError("my own")' in text)
    with pytest.raises(RFabricError, match=rf"test_face.py, line {line}: "):
        rfabric.simulate(fabric, mine, Says(fabric, "says", answer="breaks"))


def test_a_path_to_a_file_means_that_file_whatever_its_name(mine, tmp_path):
    odd = tmp_path / "a,b:c+d.py"
    odd.write_text((ROOT / "controller" / "ring_policy.py").read_text())
    assert rfabric.simulate(SMALL, mine, odd).result.policy == escaped(odd)


def test_a_policy_may_be_a_path(mine):
    words = ROOT / "controller" / "ring_policy.py"
    assert rfabric.simulate(SMALL, mine, words).result.policy == str(words)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_folder_can_have_is_refused(name, compared, tmp_path):
    with pytest.raises(RFabricError, match="cannot write"):
        compared.save(tmp_path / name)


def test_a_comparison_of_nothing_can_be_shown_but_not_saved(tmp_path):
    empty = rfabric.Comparison(())
    assert repr(empty) == "<Comparison of nothing>"
    with pytest.raises(RFabricError, match="there is no run to write"):
        empty.save(tmp_path / "mine")
    assert not list(tmp_path.iterdir())


def test_runs_go_to_another_process_and_back(compared):
    again = pickle.loads(pickle.dumps(compared))
    assert [run.step_seconds for run in again] == [run.step_seconds for run in compared]
    assert again[1].result.fabric == compared[1].result.fabric
