"""The timeline of a run for Perfetto: what happened, and nothing that did not."""

import json
from collections import defaultdict

import pytest

import rfabric
from rfabric.report import perfetto
from rfabric.report.perfetto import PROCESSES, run_document


@pytest.fixture(scope="module")
def result():
    return rfabric.simulate("rfabric", "grpo-64").result


def events(document: dict, process: str, kind: str = "X") -> list[dict]:
    every = document["traceEvents"]
    return [e for e in every if e["pid"] == PROCESSES[process] and e["ph"] == kind]


def test_all_bytes_are_in_the_flows_and_threads_nest(result):
    document = run_document(result)
    flows = events(document, "flows")
    assert sum(e["args"]["size_bytes"] for e in flows) == result.trace.size.sum()
    assert sum(e["args"]["flows"] for e in flows) == (result.trace.size > 0).sum()
    threads = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in zip(spans, spans[1:], strict=False))


def test_circuits_dark_time_and_load_are_those_of_the_run(result):
    document = run_document(result)
    assert len(events(document, "dark")) == len(result.rewires) > 0
    dark = sum(e["dur"] for e in events(document, "dark")) / 1e6
    assert dark == pytest.approx(result.dark_seconds)
    first = [e for e in events(document, "circuits") if e["ts"] == 0]
    assert sum(e["args"]["circuits"] for e in first) == len(result.epochs[0][1])
    shares = [e["args"]["share"] for e in events(document, "load", "C")]
    assert 0 < max(shares) <= 1 and min(shares) >= 0


def test_load_adds_up_to_what_the_cable_carried(result):
    busiest = int(result.link_bytes.argmax())
    name = perfetto._link_name(result, busiest)
    load = [e for e in events(run_document(result), "load", "C") if e["name"] == name]
    rate = result.fabric.links[busiest // 2].rate
    spans = zip(load, load[1:], strict=False)
    bits = sum(a["args"]["share"] * (b["ts"] - a["ts"]) / 1e6 * rate for a, b in spans)
    assert bits / 8 == pytest.approx(result.link_bytes[busiest], rel=0.01)


def test_of_too_many_events_some_are_merged_and_that_is_said(result, monkeypatch):
    monkeypatch.setattr(perfetto, "MOST_EVENTS", 40)
    document = run_document(result)
    flows = events(document, "flows")
    assert len(flows) <= 200 and "a thread a" in " ".join(document["otherData"]["merged"])
    assert sum(e["args"]["size_bytes"] for e in flows) == result.trace.size.sum()


def test_a_run_folder_holds_the_timeline(result, tmp_path):
    rfabric.simulate("rfabric", "grpo-64").save(tmp_path / "run")
    (file,) = (tmp_path / "run").glob("*/timeline.json")
    assert json.loads(file.read_text())["otherData"]["name"] == "grpo-64 on rfabric"
