"""A recipe beside what its job logged: logs as frameworks write them, and what is refused."""

import json
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


def test_medians_bubbles_and_what_a_fabric_could_save(tmp_path):
    found = validate_run(written(tmp_path / "log", "verl"), "grpo-64")
    rows = {one.phase: one for one in found.phases}
    assert rows["generation"].logged_s == 12.0 and rows["generation"].logged_p90_s == 12.8
    assert rows["bubbles"].logged_s == 2.0 and rows["step"].logged_s == 20.0
    one = rows["training"]
    assert one.could_save_s == pytest.approx(5.0 * one.fabric_s / one.predicted_s)
    total = sum(rows[kind].predicted_s for kind in ("generation", "training", "weight_sync"))
    assert rows["step"].predicted_s == pytest.approx(total)  # phases of grpo-64 follow each other


def test_the_verb_prints_one_table_or_one_document(tmp_path, capsys):
    path = written(tmp_path / "log", "slime")
    assert main(["validate-run", str(path), "--traffic", "grpo-64"]) == 0
    printed = capsys.readouterr().out
    assert "grpo-64 against 3 steps" in printed and "12.000 s" in printed
    assert main(["validate-run", str(path), "--traffic", "grpo-64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["phases"][0]["logged_s"] == 12.0 and told["steps"] == 3


@pytest.mark.parametrize(
    "text, says",
    [
        (b"nothing here\n", "tells no time of a step"),
        (b"\x80\x04\x95", "is a pickle, which is never loaded"),
        (b'{"step": 1, "timing_s/gen": 5}\n{"step": 2, "tim', "line 2: no valid JSON"),
        (b"step:1 - timing_s/gen:nan\n", "line 1: timing_s/gen is nan, no time"),
        (b"step:1 - timing_s/gen:-4\n", "line 1: timing_s/gen is -4"),
        (b"step,gen_s\n1,4\n2\n", "line 3: not as many cells as the header"),
        (b"step,gen_s\nx,4\n", "line 2: step 'x' is no number"),
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
