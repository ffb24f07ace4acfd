"""A recipe beside what its job logged: logs as frameworks write them, and what is refused."""

import base64
import json
import re
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.study.step_log import read_step_log
from rfabric.study.validate_run import validate_run

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGS = {
    "verl": "\x1b[36m(task)\x1b[0m step:{n} - timing_s/gen:{g} - timing_s/update_actor:{t} - "
    "timing_s/update_weights:{w} - timing_s/step:{s} - perf/throughput:9.5\n",
    "slime": "perf {n}: {{'perf/rollout_time': {g}, 'perf/train_time': {t}, "
    "'perf/update_weights_time': {w}, 'perf/step_time': {s}}}\n",
    "nemo-rl": "==== Step {n}/100 ====\n  - Total step time: {s}s\n  - generation: {g}s (40%)\n"
    "  - policy_training: {t}s\n  - weight_sync: {w}s\n",
    "roll": '{{"system/step": {n}, "time/step_generate": {g}, "time/step_train": {t}, '
    '"time/step_model_update": {w}, "time/step_total": {s}}}\n',
    "verl file": '{{"step": {n}, "data": {{"timing_s/gen": {g}, "timing_s/update_actor": {t}, '
    '"timing_s/update_weights": {w}, "timing_s/step": {s}}}}}\n',
}


def written(path: Path, form: str) -> Path:
    steps = [{"n": n, "g": 10.0 + n, "t": 5.0, "w": 1.0, "s": 18.0 + n} for n in range(1, 4)]
    path.write_text("".join(LOGS[form].format(**one) for one in steps))
    return path


@pytest.mark.parametrize("form", LOGS)
def test_logs_of_every_framework_say_the_same(tmp_path, form):
    log = read_step_log(written(tmp_path / "log", form))
    expected = {"generation": 12.0, "training": 5.0, "weight_sync": 1.0, "step": 20.0}
    assert len(log.steps) == 3 and log.steps[1] == expected


def test_what_a_log_leaves_open_is_not_called_small(tmp_path):
    """On slow cards a weight sync that is not logged may be worth more than what is."""
    path = tmp_path / "log"
    path.write_text("step:1 - timing_s/gen:50.0 - timing_s/step:60.0\n")
    run = validate_run(path, "grpo-64", ["cluster.nic=10Gbit/s", "generation.batch=64"])
    assert [p.phase for p in run.unknown] == ["training", "weight_sync"] and not run.shortened
    first, second, *_ = run.notes
    assert first.startswith("a logged phase could be shortened by less than 1 %")
    assert second.startswith("not logged, so what a faster fabric could shorten is open: training")


def test_of_phases_that_overlap_no_step_is_summed(tmp_path):
    path = tmp_path / "log"
    path.write_text("step:1 - timing_s/gen:50.0 - timing_s/update_actor:0.4\n")
    settings = ["generation.batch=64"]
    ahead = validate_run(path, "grpo-64", [*settings, "pipeline=one-step-off"])
    assert "the log has no step time: phases overlap, so none is taken" in ahead.notes
    assert not ahead.shortened  # nothing there is worth a hundredth of 50 s
    after = validate_run(path, "grpo-64", settings)
    assert "the log has no step time: the sum of its phases is taken" in after.notes
    assert after.phases[-1].logged_s == pytest.approx(50.4)


def test_timings_within_others_count_once(tmp_path):
    """As verl and slime print them: parts beside the whole, numbers with numpy's type."""
    path = tmp_path / "log"
    path.write_text(
        "step:1 - timing_s/generate_sequences:40.5 - timing_s/reshard:2.1 - timing_s/gen:48.9 - "
        "timing_s/agent_loop/slowest/generate_sequences:40.0 - "
        "timing_s/update_actor:np.float64(20.0) - timing_s/step:80.0\n"
    )
    assert read_step_log(path).steps[0] == {"generation": 48.9, "training": 20.0, "step": 80.0}
    path.write_text(
        "perf 3: {'perf/ref_log_probs_time': 10.0, 'perf/log_probs_time': 9.0, "
        "'perf/actor_train_time': 50.0, 'perf/train_time': np.float64(72.0)}\n"
    )
    assert read_step_log(path).steps[0] == {"training": 72.0}
    path.write_text('{"system/step": 1, "time/step_train": 50.0, "time/old_log_probs": 9.0}\n')
    assert read_step_log(path).steps[0] == {"training": 59.0}  # ROLL's stand beside each other
    path.write_text("step:1 - timing_s/generate_sequences:40.5 - timing_s/step:80.0\n")
    assert read_step_log(path).steps[0]["generation"] == 40.5


def test_medians_bubbles_and_what_a_fabric_could_save(tmp_path):
    beside = validate_run(written(tmp_path / "log", "verl"), "grpo-64")
    rows = {one.phase: one for one in beside.phases}
    assert rows["generation"].logged_s == 12.0 and rows["generation"].logged_p90_s == 12.8
    assert rows["bubbles"].logged_s == 2.0 and rows["step"].logged_s == 20.0
    one = rows["training"]
    assert one.could_save_s == pytest.approx(5.0 * one.fabric_s / one.predicted_s)
    total = sum(rows[kind].predicted_s for kind in ("generation", "training", "weight_sync"))
    assert rows["step"].predicted_s == pytest.approx(total)  # phases of grpo-64 follow each other


@pytest.mark.parametrize("batch", [32, 64, 128])
def test_phases_that_follow_each_other_leave_no_bubble(tmp_path, batch):
    """Their sum and the step may differ in the last bit."""
    log = written(tmp_path / "log", "verl")
    beside = validate_run(log, "grpo-64-h20", [f"generation.batch={batch}"])
    (bubbles,) = (one for one in beside.phases if one.phase == "bubbles")
    assert bubbles.predicted_s == 0.0 and bubbles.could_save_s is None


def test_the_verb_prints_one_table_or_one_document(tmp_path, capsys):
    path = written(tmp_path / "log", "slime")
    assert main(["validate-run", str(path), "--traffic", "grpo-64"]) == 0
    printed = capsys.readouterr().out
    assert "grpo-64 against 3 steps" in printed and "12.000 s" in printed
    assert main(["validate-run", str(path), "--traffic", "grpo-64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["phases"][0]["logged_s"] == 12.0 and told["steps"] == 3


@pytest.mark.parametrize(
    "text",
    [
        "# exported\nstep,gen_s,step_s\n1,4,9\n2,6,11\n",
        "step;gen_s;step_s\n1;4;9\n2;6;11\n",
        "step\tgen_s\tstep_s\n1\t4\t9\n2\t6\t11\n",
        "step,gen_s,step_s\n1,4,9\n2,6,11\n3,nan,nan\n",
        '{"step": 1, "gen_s": 4, "step_s": NaN}\n{"step": 1, "gen_s": NaN, "step_s": 9}\n'
        '{"step": 2, "gen_s": 6, "step_s": 11, "lr": NaN}\n',
    ],
)
def test_tables_of_steps_as_spreadsheets_and_pandas_write_them(text, tmp_path):
    """In pandas' rows, each of some metrics, nan stands for the others."""
    (tmp_path / "log").write_text(text)
    log = read_step_log(tmp_path / "log")
    assert log.steps == ({"generation": 4, "step": 9}, {"generation": 6, "step": 11})


def test_a_step_that_is_told_again_is_told(tmp_path):
    """A job that was resumed makes its last steps again; words for nothing are no times."""
    rows = "1,4,9\n2,5,10\n2,5,\n2,6,11\n3,n/a,None\n"
    (tmp_path / "log").write_text(f"step,gen_s,step_s\n{rows}")
    log = read_step_log(tmp_path / "log")
    assert log.steps == ({"generation": 4, "step": 9}, {"generation": 6, "step": 11})
    assert log.notes == ("1 steps are told again with other times: the last ones count",)


@pytest.mark.parametrize(
    "text, says",
    [
        (b"nothing here\n", "has no time of a step"),
        (b"\x80\x04\x95", "is a pickle, which is never loaded"),
        (b'{"step": 1, "timing_s/gen": 5}\n{"step": 2, "tim', "line 2: no valid JSON"),
        (b"step:1 - timing_s/gen:nan\n", "line 1: timing_s/gen is nan, no time"),
        (b"step:1 - timing_s/gen:-4\n", "line 1: timing_s/gen is -4"),
        (b"step,gen_s\n1,4\n2\n", "line 3: not as many cells as the header"),
        (b"step,gen_s\nx,4\n", "line 2: step 'x' is no number"),
        (b'step,gen_s\n1,4\n2,"1,004"\n', "line 3: gen_s is '1,004', no number of seconds"),
        (b"step;gen_s\n1;4\n2;4,5\n", "line 3: gen_s is '4,5', no number of seconds"),
        (b'{"step": 1, "timing_s/gen": "4 s"}\n', "line 1: timing_s/gen is '4 s', no number"),
    ],
)
def test_what_is_no_log_of_steps_is_refused(tmp_path, capsys, text, says):
    (tmp_path / "log").write_bytes(text)
    with pytest.raises(RFabricError, match=says):
        read_step_log(tmp_path / "log")
    assert main(["validate-run", str(tmp_path / "log"), "--traffic", "grpo-64"]) == 2


@pytest.mark.parametrize("name, steps", [("formats/verl/console_gemma2_2b.log", 4)])
def test_a_console_log_of_verl_as_it_was_printed(name, steps):
    if not (DATA / name).exists():
        pytest.skip(f"{DATA / name} is not there")
    log = read_step_log(DATA / name)
    assert len(log.steps) == steps and log.steps[0]["generation"] == 48.956
    assert log.steps[0]["training"] == pytest.approx(12.070 + 9.785 + 0.144 + 32.657 + 37.470)


# --- what loggers keep ----------------------------------------------------------------------------

SECONDS = [
    {"timing_s/gen": 11.0, "timing_s/step": 18.5},
    {"timing_s/gen": 12.0, "timing_s/step": 18.5},
]
LOGGED = ({"generation": 11.0, "step": 18.5}, {"generation": 12.0, "step": 18.5})
# SECONDS as tensorboard 2.21 writes them
EVENTS = base64.b64decode(
    "SAAAAAAAAAD+kkidCbFYBJTQwNpBGg1icmFpbi5FdmVudDoyUi4KLHRlbnNvcmJvYXJkLnN1bW1hcnkud3JpdGVyLmV2"
    "ZW50X2ZpbGVfd3JpdGVygLfrABkAAAAAAAAAi/EIKBABKhUKEwoMdGltaW5nX3MvZ2VuFQAAMEFuDpV9GgAAAAAAAAAS"
    "m9gtEAEqFgoUCg10aW1pbmdfcy9zdGVwFQAAlEHM3UaOGQAAAAAAAACL8QgoEAIqFQoTCgx0aW1pbmdfcy9nZW4VAABA"
    "QTW2XbMaAAAAAAAAABKb2C0QAioWChQKDXRpbWluZ19zL3N0ZXAVAACUQSYBEPU="
)


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data) & 127 | 128, len(data) >> 7]) + data


def history(step: int, metrics: dict) -> bytes:
    """A Record of wandb, numbers as its versions write them: typed, and as JSON before."""
    rows = b""
    for i, (key, value) in enumerate(metrics.items()):
        typed = b"\x31" + struct.pack("<d", value)
        text = bytes([16 << 3 & 127 | 2 | 128, 1, 4]) + json.dumps(value).encode()
        rows += field(1, field(2, key.encode()) + (typed if i % 2 else text))
    return field(2, rows + field(2, bytes([8, step])))


def offline(path: Path, *records: bytes) -> Path:
    """An offline run of wandb: pieces that end with their block."""
    log = b":W&B\xe1\xbe\x00"
    for record in records:
        kind = 0
        while record or not kind:
            room = 32768 - len(log) % 32768
            if room < 7:
                log += b"\0" * room
                continue
            piece, record = record[: room - 7], record[room - 7 :]
            kind = (3 if record else 4) if kind else (2 if record else 1)
            check = zlib.crc32(bytes([kind]) + piece)
            log += struct.pack("<IHB", check, len(piece), kind) + piece
    path.write_bytes(log)
    return path


def mlflow(run: Path, extra="") -> Path:
    for name in SECONDS[0]:
        file = run / "metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"17 {m[name]} {n}\n" for n, m in enumerate(SECONDS, 1)) + extra)
    return run


def database(path: Path, *runs: str) -> Path:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan)")
        for run in runs:
            for step, metrics in enumerate(SECONDS, 1):
                for key, value in metrics.items():
                    base.execute(
                        "INSERT INTO metrics VALUES (?, ?, 17, ?, ?, 0)", (key, value, run, step)
                    )
    return path


def kept(folder: Path, form: str) -> Path:
    if form == "tensorboard":
        (folder / "job").mkdir()
        (folder / "job" / "events.out.tfevents.17.vm.1.0").write_bytes(EVENTS)
        return folder
    if form == "wandb":
        rows = [history(n, metrics) for n, metrics in enumerate(SECONDS, 1)]
        return offline(folder / "run-x.wandb", field(5, b"c" * 16000) * 5, *rows)
    if form == "mlflow":
        return mlflow(folder / "0" / "ab").parent.parent
    if form == "database":
        return database(folder / "mlflow.db", "ab")
    path = folder / "history"
    if form == "page":  # as a chart of wandb's pages is exported
        head = [f"{run} - {m}" for m in SECONDS[0] for run in ("a",)]
        head += [f"{name}__MAX" for name in head]
        rows = [[str(n), *(str(v) for v in [*m.values()] * 2)] for n, m in enumerate(SECONDS, 1)]
        path.write_text("\n".join('"' + '","'.join(row) + '"' for row in [["Step", *head], *rows]))
    else:
        path.write_text(json.dumps([{"_step": n} | m for n, m in enumerate(SECONDS, 1)], indent=1))
    return path


@pytest.mark.parametrize("form", ["tensorboard", "wandb", "mlflow", "database", "page", "list"])
def test_what_loggers_keep_says_the_same(tmp_path, form):
    log = read_step_log(kept(tmp_path, form))
    assert log.steps == LOGGED and not log.notes


@pytest.mark.parametrize("others, generation", [
    ({"fully_async/trainer/idle_ratio": 0.1, "timing_s/timing_s/param_sync": 4.0}, None),
    ({"separate_async/switch/idle": 1.0, "timing_s/update_weights": 4.0}, None),
    ({"timing_s/generate_async": 50.0, "timing_s/sync_rollout_weights": 4.0}, 50.0),
])  # fmt: skip
def test_what_a_trainer_of_verl_waits_for_its_queue_is_no_generation(tmp_path, others, generation):
    seconds = {"timing_s/gen": 3.0, "timing_s/update_actor": 30.0, "timing_s/step": 40.0} | others
    said = " - ".join(f"{key}:{value}" for key, value in seconds.items())
    (tmp_path / "verl.log").write_text(f"step:1 - {said}\n")
    (step,) = read_step_log(tmp_path / "verl.log").steps
    told = {"training": 30.0, "weight_sync": 4.0, "step": 40.0, "waiting": 3.0}
    assert step == told | ({"generation": generation} if generation else {})


@pytest.mark.parametrize("pipeline, more", [
    ("sync", {"generation": 49.0}), ("async", {"waiting": 49.0}), ("", {}),
])  # fmt: skip
def test_tables_of_areal_in_its_console(tmp_path, pipeline, more):
    rows = [("rollout", 4.9e1, "compute_advantage", 1.0, "save", 1.0),
            ("recompute_logp", 5.0, "train_step", 27.5, "update_weights", 3.0)]  # fmt: skip
    cells = (" │ ".join(str(c) if i % 2 else f"timeperf/{c}" for i, c in enumerate(row))
             for row in rows)  # fmt: skip
    table = "\n├───┼───┤\n".join(f"│ {row} │" for row in cells)
    said = "StatsLogger INFO: Epoch 2/10 Step 1/100 Train step 101/1000 done.\n"
    (tmp_path / "areal.log").write_text(f"20261127-23:00:00.123 {said}\n╒═══╤═══╕\n{table}\n")
    log = read_step_log(tmp_path / "areal.log", pipeline)
    assert log.numbers == (101,) and log.unused == ("timeperf/rollout",)[bool(more) :] + (
        "timeperf/save",
    )
    assert log.steps == ({"training": 33.5, "weight_sync": 3.0} | more,)


def test_a_folder_with_events_of_its_own_is_that_run(tmp_path):
    name = "events.out.tfevents.17.vm.1.0"
    (tmp_path / "1700000000.5").mkdir()
    (tmp_path / "1700000000.5" / name).write_bytes(EVENTS)  # as SummaryWriter.add_hparams does
    (tmp_path / name).write_bytes(EVENTS)
    log = read_step_log(tmp_path)
    assert log.steps == LOGGED and log.notes == ("1 runs in folders below it left out",)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(RFabricError, match="no time of a step.*1 runs in folders below it left"):
        read_step_log(tmp_path)


def test_a_log_that_a_killed_job_left_is_read_as_far_as_it_goes(tmp_path, capsys):
    events = tmp_path / "events.out.tfevents.1"
    events.write_bytes(EVENTS[:-9])
    log = read_step_log(events)
    assert log.steps == (LOGGED[0], {"generation": 12.0})
    assert "record 5 is cut short; what stands before it is read" in log.notes[0]
    assert main(["validate-run", str(events), "--traffic", "grpo-64"]) == 0
    assert "record 5 is cut short" in "".join(capsys.readouterr())
    whole = offline(tmp_path / "run.wandb", *(history(n, m) for n, m in enumerate(SECONDS, 1)))
    whole.write_bytes(whole.read_bytes()[:-3])
    log = read_step_log(whole)
    assert log.steps == LOGGED[:1] and "last record is cut short" in log.notes[0]


@pytest.mark.parametrize("at", [20, 100, 110, 140, 190])
def test_damaged_events_are_refused(tmp_path, at):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(EVENTS[:at] + bytes([EVENTS[at] ^ 1]) + EVENTS[at + 1 :])
    with pytest.raises(RFabricError, match=r"record \d is damaged"):
        read_step_log(path)


def test_a_damaged_run_of_wandb_is_refused(tmp_path):
    path = offline(tmp_path / "run.wandb", history(1, SECONDS[0]), history(2, SECONDS[1]))
    data = path.read_bytes()
    path.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(RFabricError, match="run.wandb, piece 1 is damaged"):
        read_step_log(path)


def test_one_run_at_a_time(tmp_path, capsys):
    for run in ("a", "b"):
        mlflow(tmp_path / "0" / run)
    with pytest.raises(RFabricError, match=r"holds 2 runs \(0/a/metrics, 0/b/metrics .*give one"):
        read_step_log(tmp_path)
    assert read_step_log(tmp_path / "0" / "b").steps == LOGGED
    base = database(tmp_path / "mlflow.db", "ab", "cd")
    with pytest.raises(RFabricError, match=r"holds 2 runs \(ab, cd .*give mlflow.db/RUN"):
        read_step_log(base)
    assert read_step_log(base / "cd").steps == LOGGED
    (tmp_path / "none").mkdir()
    assert main(["validate-run", str(tmp_path / "none"), "--traffic", "grpo-64"]) == 2
    assert "holds no tfevents of TensorBoard" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, says",
    [
        ("Step,a - timing_s/gen,b - timing_s/gen\n1,2,3\n", "two columns give timing_s/gen"),
        ('[\n {"timing_s/gen": 1},\n', "no valid JSON, it may be cut short"),
        ('[\n {"timing_s/gen": 1}, 7]\n', "row 2: is no object"),
    ],
)
def test_exported_history_that_cannot_be_read_is_refused(tmp_path, text, says):
    (tmp_path / "log").write_text(text)
    with pytest.raises(RFabricError, match=says):
        read_step_log(tmp_path / "log")


def test_a_line_that_is_no_metric_of_mlflow_is_named(tmp_path):
    mlflow(tmp_path / "run", extra="17 x\n")
    with pytest.raises(RFabricError, match="metrics/timing_s/gen, line 3: '17 x' is not"):
        read_step_log(tmp_path / "run")
    mlflow(tmp_path / "run", extra="17 nan 3\n")
    with pytest.raises(RFabricError, match="step 3: timing_s/gen is nan, no time"):
        read_step_log(tmp_path / "run")


def test_events_as_tensorboard_itself_writes_them(tmp_path):
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    file = writer.EventFileWriter(str(tmp_path))
    for step, metrics in enumerate(SECONDS, 1):
        for key, value in metrics.items():
            tensor = TensorProto(dtype=1, float_val=[value])
            file.add_event(
                Event(step=step, summary=Summary(value=[Summary.Value(tag=key, tensor=tensor)]))
            )
    file.close()
    assert read_step_log(tmp_path).steps == LOGGED


def test_an_offline_run_as_wandb_itself_writes_it(tmp_path):
    wandb = pytest.importorskip("wandb")
    run = wandb.init(mode="offline", project="x", dir=str(tmp_path))
    for step, metrics in enumerate(SECONDS, 1):
        run.log(metrics | {"long": "x" * 40000}, step=step)
    run.finish()
    assert read_step_log(tmp_path).steps == LOGGED


ROWS = re.findall(
    r"^\|[^|]*\| `rfabric (validate-run [^`]*)` \|",
    (Path(__file__).parents[2] / "docs/inputs.md").read_text(encoding="utf-8"), re.M,
)  # fmt: skip


@pytest.mark.parametrize("line", ROWS)
def test_each_row_of_the_page_runs(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    if "train.log" in line:
        written(tmp_path / "train.log", "verl")
    else:
        (tmp_path / "tensorboard_log").mkdir()
        kept(tmp_path / "tensorboard_log", "tensorboard")
    assert main(line.split()) in (0, None)
    assert re.search(r" (12.000|11.500) s ", capsys.readouterr().out)


def test_a_console_log_that_may_end_in_mid_number_says_so(tmp_path):
    """A job that still runs: of 48.9 s the log has 4 so far."""
    line = "step:1 - timing_s/gen:48.9 - timing_s/step:95.0\n"
    (tmp_path / "train.log").write_text(line + line.replace("1 -", "2 -")[:23])
    log = read_step_log(tmp_path / "train.log")
    assert log.notes == ("its last line has no end; is the file whole?",)
    assert log.steps == ({"generation": 48.9, "step": 95.0}, {"generation": 4.0})
    (tmp_path / "train.log").write_text(line)
    assert not read_step_log(tmp_path / "train.log").notes


def test_labels_of_srun_before_the_lines_of_nemo_rl(tmp_path):
    text = "== Step 3/100 ==\n  Total step time: 95.3s\n  generation: 48.9s (51.3%)\n"
    for label in ("", "0: ", " 0: ", "12: "):
        (tmp_path / "run.log").write_text("".join(f"{label}{s}\n" for s in text.splitlines()))
        log = read_step_log(tmp_path / "run.log")
        assert log.steps == ({"step": 95.3, "generation": 48.9},) and log.numbers == (3,)


def test_a_trainer_that_waits_while_others_generate_is_no_bubble_of_a_step_in_turn(tmp_path):
    """slime's step is its trainer's wait and its training; the wait holds generation."""
    seconds = {"rollout": 60.0, "update_weights": 4.0, "train_wait": 65.0, "train": 45.0}
    said = {f"perf/{key}_time": value for key, value in (seconds | {"step": 110.0}).items()}
    (tmp_path / "slime.log").write_text(f"[2026] utils.py:46 - perf 0: {said}\n")

    def bubbles(*settings):
        rows = validate_run(tmp_path / "slime.log", "grpo-64", settings).phases
        return next(row.logged_s for row in rows if row.phase == "bubbles")

    assert bubbles("pipeline=sync") == 1.0  # 110 - 60 - 4 - 45
    assert bubbles("pipeline=one-step-off") == 65.0
