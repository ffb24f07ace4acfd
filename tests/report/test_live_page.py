"""The page that follows a run: what it is told, to whom the server answers, and how both end.

A run's records are played without packets: looks are made of a simulated result, as an emulation
makes them of its replay.
"""

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_page import HOSTILE, job, told

from rfabric.cli import main
from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.report import html, live
from rfabric.report.page import records, server
from rfabric.report.result import Pace
from rfabric.report.summary import Run, summary_of
from rfabric.simulate.world import simulate
from rfabric.trace import TraceBuilder, point_to_point, ring, write_trace

PATIENCE = 60.0  # s that a busy machine may take
OK = Pace(True, 0.5, 1e-3, (), "").to_json()


@pytest.fixture(scope="module")
def results():
    trace = job()
    fabrics = map(parse_fabric, ("fat-tree,pods=2,tors=2", "rfabric,pods=2,tors=2"))
    return [simulate(f, trace, "demand", traffic="small", seed=7) for f in fabrics]


def looks_of(result, count=12, load=100):
    """The looks of a run that went as `result` says."""
    times = np.linspace(0, result.step_seconds, count + 1)
    column = base64.b64encode(bytes([load] * 2 * len(result.fabric.links))).decode()
    for i, (before, now) in enumerate(zip(times, times[1:], strict=False)):
        first, last = i == 0, i == count - 1

        def new(at, first=first, last=last, before=before, now=now):
            return (at >= before if first else at > before) & (at <= now if not last else True)

        rows = np.flatnonzero(new(result.start) | new(result.finish)).tolist()
        yield {
            "clock_s": float(now),
            "phase": "",
            "rows": [
                [r, float(result.start[r]), float(f) if (f := result.finish[r]) <= now else None]
                for r in rows
            ],
            "circuits": [[t, c.to_json()] for t, c in result.epochs if new(np.float64(t))],
            "rewires": [r.to_json() for r in result.rewires if new(np.float64(r.usable))],
            "under_way": None,
            "load": {"spans": [[float(before), float(now)]], "levels": column},
            "guard": OK,
        }


@pytest.fixture
def view(tmp_path):
    with live.LiveView(0, "rfabric emulate --live") as view:
        view.keep_in(tmp_path)
        yield view


def asked(address, path=None, **headers):
    """What the server answers, of which the body is still to be read; `path` instead of the
    address's own.
    """
    _, _, host, *rest = address.split("/")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("GET", path or "/" + "/".join(rest), headers=headers)
    return connection.getresponse()


def get(address, path=None, **headers):
    """(status, body) of what the server answers."""
    answer = asked(address, path, **headers)
    return answer.status, answer.read().decode()


def heard(answer):
    """The records that a stream tells, where each ends, and its last word."""
    assert answer.status == 200
    *lines, last = answer.read().decode().strip().split("\n\n")
    assert last.startswith("event: end\ndata: ")
    events = [line.split("\n") for line in lines if not line.startswith(":")]
    assert all(one.startswith("id: ") for one, _ in events)
    ids = [int(one.removeprefix("id: ")) for one, _ in events]
    told = [json.loads(two.removeprefix("data: ")) for _, two in events]
    return told, ids, json.loads(last.partition("data: ")[2])


def stream(address, **headers):
    """All that a stream tells, until its end."""
    return heard(asked(address + "events", **headers))


def aside(do, *args, **more):
    """A thread that does it, and the list in which its result will be."""
    results = []
    thread = threading.Thread(target=lambda: results.append(do(*args, **more)), daemon=True)
    thread.start()
    return thread, results


def watching(address):
    """A stream that is open, read by a thread; and the list in which all it tells will be."""
    return aside(heard, asked(address + "events"))


# --- records --------------------------------------------------------------------------------------


def added_up(steps):
    """Times, and how many are open from each on."""
    steps = sorted(steps)
    return [t for t, _ in steps], np.cumsum([n for _, n in steps]).tolist()


def test_records_add_up_to_the_lanes_and_phases_of_the_report(results):
    """What comes piece by piece is what a report makes of the whole run."""
    for result in results:
        one = live._Heard(result, range(3))
        told = [one.record(look) for look in looks_of(result, 17)]
        lanes, phases, flows = {}, {}, {}
        for record in told:
            for phase, n, kind, steps in record["lanes"]:
                lanes.setdefault((phase, n, kind), []).extend(steps)
            phases |= {p[0]: p for p in record["phases"]}
            flows |= {f[0]: f for f in record["flows"]}
        for lane in records.lanes(result):
            for kind in {"computes", "sends"} & set(lane):
                time_, count = added_up(lanes.pop((lane["phase"], lane["job"], kind)))
                last = dict(zip(time_, count, strict=True))  # several changes at one instant
                drawn = lane[kind]
                for t, n in zip(drawn["time"], drawn["count"], strict=True):
                    seen = [at for at in last if at <= t]
                    assert (last[max(seen)] if seen else 0) == n, (lane["phase"], kind, t)
        assert not lanes
        for phase in result.phases:
            name, _, _, begin, end = phases[str(phase.key)]
            assert (begin, end) == (pytest.approx(phase.begin), pytest.approx(phase.end)), name
        assert {i: f[1:] for i, f in flows.items()} == {
            i: [result.start[i], result.finish[i]] for i in range(3)
        }


def test_circuits_come_with_the_light_paths_of_the_report(results):
    result = results[1]
    one = live._Heard(result, [])
    told = [c for look in looks_of(result) for c in one.record(look)["circuits"]]
    drawn = records._circuits(result, [])
    assert [c["time_s"] for c in told] == drawn["times"] and len(told) > 1
    for circuits, held in zip(told, drawn["sets"], strict=True):
        expected = drawn["held"][held]
        assert circuits["names"] == [drawn["names"][i] for i in expected["circuits"]]
        assert circuits["paths"] == [drawn["paths"][i] for i in expected["paths"]]


def test_a_run_that_begins_again_begins_at_nothing(view, results):
    view.begin(results)
    for _ in range(2):
        look = view.turn(results[1])
        for one in looks_of(results[1], 3):
            look(one)
    waiting, answers = watching(view.address)
    view.end(error="again")
    waiting.join(PATIENCE)
    told, _, _ = answers[0]
    turns = [i for i, record in enumerate(told) if record == {"turn": 3}]
    first, second = told[turns[0] + 1 : turns[1]], told[turns[1] + 1 :]
    assert len(turns) == 2 and first == second and len(first) == 3


# --- the server -----------------------------------------------------------------------------------


def test_a_late_page_gets_what_went_before_and_none_gets_it_twice(view, results):
    view.begin(results)
    early, of_early = watching(view.address)
    look = view.turn(results[0])
    for one in looks_of(results[0]):
        look(one)
    late, of_late = watching(view.address)
    view.said("fat-tree", {"stage": "again, slower"})
    view.said("fat-tree", {"stage": "again, slower"})
    ending, _ = aside(view.end, error="stopped")
    for thread in (early, late, ending):
        thread.join(PATIENCE)
    (told, ids, last), (again, *_) = of_early[0], of_late[0]
    assert told == again and last == {"error": "stopped", "report": False}
    kept = [json.loads(line) for line in Path(view.file.name).read_text().splitlines()]
    assert told == kept and len(told) == 14 and told[-1] == {"said": "fat-tree: again, slower"}
    assert ids == sorted(set(ids))


def test_who_comes_back_goes_on_where_it_was(tmp_path):
    lines = [b'{"n":%d}\n' % i for i in range(9)]
    (tmp_path / "r").write_bytes(b"".join(lines) + b'{"n":')  # a line that is being written
    with serving(tmp_path / "r") as (address, running):
        running.last = {"error": "over"}
        told, ids, _ = stream(address)
        assert [one["n"] for one in told] == list(range(9))
        for i in (0, 4, 8):
            rest, *_ = stream(address, **{"Last-Event-ID": str(ids[i])})
            assert [one["n"] for one in rest] == list(range(i + 1, 9))
        for wrong in ("7", "99999999", "-1", "x", "1e3", "9" * 400):
            assert len(stream(address, **{"Last-Event-ID": wrong})[0]) == 9, wrong


def test_a_line_longer_than_a_chunk_is_sent_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "CHUNK", 16)
    rows = [{"text": "x" * n} for n in (1, 500, 3, 70, 0)]
    (tmp_path / "r").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(tmp_path / "r") as (address, running):
        running.last = {"error": ""}
        assert stream(address)[0] == rows


class serving:  # noqa: N801  used as a function
    """A server in this process, on the records of a file."""

    def __init__(self, file):
        self.file = os.open(file, os.O_RDONLY)

    def __enter__(self):
        listening = socket.create_server(("127.0.0.1", 0))
        self.server = server.LiveServer(
            listening, "secret", b"<p>page</p>", server.Records(self.file)
        )
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/secret/", self.server

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        os.close(self.file)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_without_the_token_or_from_elsewhere_nothing_is_told(tmp_path):
    (tmp_path / "r").write_text('{"said":"private"}\n')
    with serving(tmp_path / "r") as (address, running):
        running.last = {"error": ""}
        port = address.split("/")[2].partition(":")[2]
        refused = [
            (404, "/", {}),
            (404, "/events", {}),
            (404, "/secre/", {}),
            (404, "/secret/../secret/x", {}),
            (404, "/secret", {}),
            (404, "/%73ecret/", {}),
            (421, None, {"Host": f"evil.example:{port}"}),
            (421, None, {"Host": "127.0.0.1:1"}),
            (421, None, {"Host": ""}),
            (403, None, {"Origin": "http://evil.example"}),
            (403, None, {"Origin": "null"}),
            (403, None, {"Origin": f"https://127.0.0.1:{port}"}),
            (403, None, {"Sec-Fetch-Site": "cross-site"}),
            (403, None, {"Sec-Fetch-Site": "same-site"}),
        ]
        for status, path, headers in refused:
            code, text = get(address, path, **headers)
            assert code == status and "private" not in text and "<p>" not in text, headers
            if path is None:
                assert get(address + "events", **headers)[0] == status
        ours = {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"}
        assert get(address, **ours) == (200, "<p>page</p>")
        assert get(address, Host=f"localhost:{port}")[0] == 200
        assert stream(address, **ours)[0] == [{"said": "private"}]


def test_nobody_else_may_frame_cache_or_be_told_the_address(tmp_path):
    (tmp_path / "r").write_text("")
    with serving(tmp_path / "r") as (address, _):
        asked = http.client.HTTPConnection(address.split("/")[2], timeout=PATIENCE)
        asked.request("GET", "/secret/")
        headers = dict(asked.getresponse().getheaders())
    assert headers.items() >= server.HEADERS.items()
    assert "Access-Control-Allow-Origin" not in headers
    assert server.HEADERS["Referrer-Policy"] == "no-referrer"  # the token stands in the address


def slowly(address):
    """All that a stream tells a reader that is slower than it."""
    answer, pieces = asked(address + "events"), []
    while piece := answer.read(40_000):
        pieces.append(piece)
        time.sleep(0.05)
    texts = re.findall(rb"^data: (.*)$", b"".join(pieces), re.M)
    return [json.loads(text) for text in texts]


def test_1000_events_a_second_with_pages_that_are_slow_read_none_or_go(tmp_path):
    path, count = tmp_path / "r", 3000
    with open(path, "ab", buffering=0) as file, serving(path) as (address, running):
        host, port = address.split("/")[2].split(":")
        deaf, going = (socket.create_connection((host, int(port))) for _ in range(2))
        for one in (deaf, going):
            one.sendall(f"GET /secret/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        until(lambda: running.streams == 2)
        reads, answers = watching(address)
        lags, late = aside(slowly, address)
        began = time.monotonic()
        for i in range(count):
            file.write(json.dumps({"n": i, "more": "x" * 1000}).encode() + b"\n")
            if i == count // 3:
                going.close()
            time.sleep(max(0.0, began + i * 1e-3 - time.monotonic()))
        until(lambda: running.streams <= 3)  # who went is noticed
        ended, _ = aside(running.end, {"error": "over"})
        reads.join(PATIENCE)
        assert [one["n"] for one in answers[0][0]] == list(range(count))
        lags.join(PATIENCE)
        assert [one.get("n") for one in late[0]] == [*range(count), None]
        deaf.close()
        ended.join(PATIENCE)
        assert not ended.is_alive() and running.streams == 0


def test_more_pages_than_it_serves_are_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "MOST_STREAMS", 1)
    (tmp_path / "r").write_text("")
    with serving(tmp_path / "r") as (address, running):
        first, answers = watching(address)
        until(lambda: running.streams == 1)
        status, text = get(address + "events")
        assert status == 503 and "1 pages watch this run already" in text
        running.end({"error": "over"})
        first.join(PATIENCE)
        assert answers[0][2]["error"] == "over"


# --- how it ends ----------------------------------------------------------------------------------


def test_the_page_becomes_the_report_and_the_server_ends(view, results, tmp_path):
    (tmp_path / "report.html").write_text("<p>the report</p>")
    view.begin(results)
    process = view.server
    reads, answers = watching(view.address)
    assert "Waiting for the run" in get(view.address)[1]
    ended, _ = aside(view.end, tmp_path / "report.html")
    reads.join(PATIENCE)
    assert answers[0][2] == {"error": "", "report": True}
    assert get(view.address) == (200, "<p>the report</p>")
    ended.join(PATIENCE)
    assert process.returncode == 0
    with pytest.raises(OSError):
        get(view.address)


def test_with_nobody_watching_it_ends_at_once(view, results, tmp_path):
    view.begin(results)
    process = view.server
    view.end(tmp_path / "report.html")
    assert process.returncode == 0


def test_a_server_that_was_killed_does_not_hold_up_the_run(view, results):
    view.begin(results)
    look, process = view.turn(results[0]), view.server
    os.kill(process.pid, signal.SIGKILL)
    for one in looks_of(results[0]):
        look(one)
    view.end(error="over")
    assert len(Path(view.file.name).read_text().splitlines()) == 13
    assert process.returncode == -signal.SIGKILL


def test_an_error_of_the_run_is_said_on_its_page(results, tmp_path):
    with pytest.raises(RFabricError, match="cable"), live.LiveView() as view:
        view.keep_in(tmp_path)
        view.begin(results)
        reads, answers = watching(view.address)
        raise RFabricError("a cable carried other bytes")
    reads.join(PATIENCE)
    assert answers[0][2] == {"error": "a cable carried other bytes", "report": False}


KILLED = """
import sys, time
from rfabric.fabric import parse_fabric
from rfabric.report.live import LiveView
from rfabric.simulate.world import simulate
from rfabric.trace import read_trace
from pathlib import Path
trace, folder = sys.argv[1:]
result = simulate(parse_fabric("fat-tree,pods=2,tors=2"), read_trace(Path(trace)), "static")
with LiveView() as view:
    view.keep_in(Path(folder))
    view.begin([result])
    view.turn(result)
    print(view.address, view.server.pid, "matplotlib" in sys.modules, flush=True)
    time.sleep(600)
"""


def test_kill_9_of_the_run_ends_its_server_which_says_so(tmp_path):
    write_trace(job(), tmp_path / "t.csv")
    words = [sys.executable, "-c", KILLED, str(tmp_path / "t.csv"), str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(Path(live.__file__).parents[2])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as run:
        address, pid, draws = run.stdout.readline().split()
        assert draws == "False"  # that is for the report, and takes longer than all of the page
        reads, answers = watching(address)
        run.kill()
    reads.join(PATIENCE)
    told, _, last = answers[0]
    assert told == [{"turn": 1}] and last == {"error": server.GONE, "report": False}
    until(lambda: not alive(int(pid)))


def alive(pid):
    """Whether it runs: one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- bad input ------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_before_anything_runs_and_two_may_serve():
    with live.LiveView() as one, live.LiveView() as two:
        assert one.address != two.address and one.token != two.token
        port = int(one.address.split(":")[2].split("/")[0])
        with pytest.raises(RFabricError, match=f"--live {port}: .*; give another port"):
            live.LiveView(port)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--live", "--live follows packets, and a simulation has none: use emulate"),
        ("--live 0", "port 0 must lie between 1 and 65535"),
        ("--live 65536", "port 65536 must lie between 1 and 65535"),
        ("--live here", "'here' must be a whole number"),
    ],
)
def test_bad_words_after_live_are_refused(words, said, tmp_path, capsys):
    write_trace(job(), tmp_path / "t.csv")
    topo = "--topo fat-tree,pods=2,tors=2"
    line = f"replay {tmp_path / 't.csv'} {topo} --out {tmp_path / 'runs'} {words}"
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_hostile_names_are_text(tmp_path):
    result = simulate(
        parse_fabric("fat-tree,pods=2,tors=2"), job(label=HOSTILE), "static", traffic=HOSTILE
    )
    clock = records.document([Run(result)], summary_of([Run(result)], HOSTILE, ""), HOSTILE)
    text = html.live_page(clock, summary_of([Run(result)], HOSTILE, ""))
    scripts = re.findall(r"<script[^>]*>", text)
    assert scripts == ['<script type="application/json" id="records">', "<script>", "<script>"]
    assert "<img" not in text and told(text)["title"] == HOSTILE
    assert "connect-src 'self'" in text and "default-src 'none'" in text


# --- in a browser ---------------------------------------------------------------------------------


def wait_for(page, condition):
    """Wait in the browser's time: the page's policy lets nobody else run a script that waits."""
    for _ in range(int(PATIENCE * 20)):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError(page.inner_text("body")[:500])


def clock(page):
    return float(page.inner_text("#now").removesuffix(" s"))


def figure(page, row, name):
    """A cell of the table of this instant."""
    line = page.locator("#live tbody tr", has=page.get_by_text(row, exact=True))
    return line.locator(f"td[data-figure='{name}']").inner_text()


# how far beyond the cursor the lanes of the chosen row reach
BEYOND = """() => {
  const row = document.querySelector("#lanes .row-chosen").parentNode;
  const boxes = [...row.querySelectorAll(".area")].map(area => area.getBBox());
  const cursor = document.querySelector("#lanes .cursor").getAttribute("x1");
  return Math.max(...boxes.map(box => box.x + box.width)) - cursor;
}"""


def test_a_browser_follows_a_recorded_run_to_its_report(view, results, watched, tmp_path):
    """Circuits, rewires, phases, loads and the guard as they come; then the report, by itself."""
    runs = [Run(replace(result, engine="emulate")) for result in results]
    html.write_report(tmp_path / "report.html", runs, summary_of(runs, "rfabric", "now"))
    view.begin(results)
    page = watched(view.address)
    assert page.inner_text("#doing") == "Waiting for the run."
    view.said("calibrate", {"stage": "calibrate"})
    wait_for(page, lambda: page.inner_text("#doing") == "calibrate: calibrate")
    for result in results:
        look, label = view.turn(result), f"{result.fabric.name}, real packets"
        wait_for(page, lambda label=label: page.inner_text("#instant").startswith(label))
        assert figure(page, label, "clock") == "0 s"
        waits = [figure(page, f"{r.fabric.name}, real packets", "clock") for r in results]
        assert waits.count("not begun") == len(results) - 1 - results.index(result)
        for one in looks_of(result, 6):
            look(one)
            seen = one["clock_s"]
            wait_for(page, lambda seen=seen: abs(clock(page) - seen) < 1e-5 * seen + 1e-3)
            instant = page.inner_text("#instant")
            assert instant.startswith(label)
            in_flight = (result.start <= seen) & (seen * (1 - 1e-9) < result.finish)
            flows = int((in_flight & (result.trace.size > 0)).sum())
            assert figure(page, label, "flows in flight") == str(flows)
            if flows:  # whose lanes reach to now
                assert page.evaluate(BEYOND) == pytest.approx(0, abs=1.5)
            usable = sum(r.usable <= seen for r in result.rewires)
            assert figure(page, label, "rewires so far") == str(usable)
        assert "keeps pace" in page.inner_text("#guard")
    assert page.locator("#fabric .circle .path").count() > 0
    assert "circuits, epoch" in page.inner_text("#instant")
    late = watched(view.address, 420)  # opened late
    wait_for(late, lambda: abs(clock(late) - clock(page)) < 1e-3)
    assert late.inner_text("#live") == page.inner_text("#live")
    assert late.evaluate("document.documentElement.scrollWidth") <= 420
    ended, _ = aside(view.end, tmp_path / "report.html")
    for one in (page, late):
        wait_for(one, lambda one=one: not one.locator("#doing").count())
        one.wait_for_selector("html[data-ready]")
        assert "In a step of" in one.inner_text(".lead")
        assert one.url.startswith(view.address)
    ended.join(PATIENCE)
    assert view.server is None
    page.keyboard.press("End")  # it stands without its server
    end = max(r.step_seconds for r in results)
    wait_for(page, lambda: clock(page) == pytest.approx(end, abs=1e-3))


def test_who_looks_back_is_left_there_until_following_again(view, results, watched):
    view.begin(results)
    page = watched(view.address)
    look, all_of_it = view.turn(results[1]), list(looks_of(results[1], 6))
    for one in all_of_it[:3]:
        look(one)
    wait_for(page, lambda: clock(page) > 0)
    before = clock(page)
    page.click("#back")
    wait_for(page, lambda: clock(page) < before)
    there = clock(page)
    assert page.get_attribute("#follow", "aria-pressed") == "false"
    look(all_of_it[3])
    page.wait_for_timeout(1000)
    assert clock(page) == there
    page.click("#follow")
    wait_for(page, lambda: abs(clock(page) - all_of_it[3]["clock_s"]) < 1e-2)
    view.end(error="over <b>and out</b>")
    wait_for(page, lambda: "over <b>and out</b>" in page.inner_text("#doing"))
    wait_for(page, lambda: "done" in figure(page, "rfabric, real packets", "clock"))


def test_a_browser_keeps_up_with_1000_looks_a_second(view, results, watched):
    view.begin(results)
    page, look = watched(view.address), view.turn(results[1])
    began, every = time.monotonic(), list(looks_of(results[1], 3000))
    for i, one in enumerate(every):
        look(one)
        time.sleep(max(0.0, began + i * 1e-3 - time.monotonic()))
    wait_for(page, lambda: abs(clock(page) - every[-1]["clock_s"]) < 1e-3)
    page.click("#back")
    wait_for(page, lambda: clock(page) < every[-1]["clock_s"] - 1e-3)
    assert figure(page, "rfabric, real packets", "rewires so far") == "2"
    view.end(error="over")


def test_a_page_whose_run_is_gone_says_so_and_stands(view, results, browser):
    view.begin(results)
    page = browser.new_page()
    page.goto(view.address)
    page.wait_for_selector("html[data-ready]")
    look = view.turn(results[1])
    for one in looks_of(results[1], 3):
        look(one)
    wait_for(page, lambda: clock(page) > 0)
    view.server.kill()
    wait_for(page, lambda: "not connected" in page.inner_text("#doing"))
    page.keyboard.press("Home")
    wait_for(page, lambda: clock(page) == 0)
    wait_for(page, lambda: "server is gone" in page.inner_text("#doing"))


def test_axe_finds_nothing_serious_on_a_live_page(view, results, browser):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    view.begin(results)
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(view.address)
    page.wait_for_selector("html[data-ready]")
    look = view.turn(results[1])
    for one in looks_of(results[1], 3):
        look(one)
    wait_for(page, lambda: clock(page) > 0)
    violations = axe.Axe().run(page).response["violations"]
    assert not [v for v in violations if v["impact"] in ("serious", "critical")]


# --- real packets ---------------------------------------------------------------------------------


def small_step(file):
    """An all-reduce of 8 hosts, then weights to half of them: some 2 s of packets at SCALE."""
    builder = TraceBuilder([f"h{i + 1}" for i in range(8)])
    made = [builder.compute(h, 3.0 + h, label="generate", phase="generation") for h in range(4)]
    edges = ring("all-reduce", list(range(8)), 1.2e10, 4)
    reduced = builder.flows(
        edges.src, edges.dst, edges.size, after=made, label="all-reduce", phase="training"
    )
    edges = point_to_point([(4 + i, i) for i in range(4)], 1.6e10, 2)
    builder.flows(
        edges.src, edges.dst, edges.size, after=reduced, label="weights", phase="weight_sync"
    )
    write_trace(builder.build(), file)


SCALE = "--bandwidth-scale 1e-4 --time-dilation 4"
TRIES = 3  # of a host that other work keeps from keeping pace


@pytest.mark.root
def test_the_page_follows_a_real_emulation_to_its_end(watched, run_dir, tmp_path):
    """Real packets: every kind of record comes, in a browser the rows fill, and at the end the page
    is the run folder's report; nothing is left.
    """
    small_step(tmp_path / "t.csv")
    for left in reversed(range(TRIES)):
        code, page, seen = followed(watched, run_dir, tmp_path / "t.csv")
        if code == 0 or not left:
            break
        assert "did not keep pace" in page.inner_text("#doing")
    assert code == 0
    (folder,) = (f for f in run_dir.iterdir() if (f / "summary.json").exists())
    assert told((folder / "report.html").read_text()) == told(page.content())
    summary = json.loads((folder / "summary.json").read_text())
    assert {run["engine"] for run in summary["runs"]} == {"emulate"}
    for label in ("fat-tree", "rfabric"):
        assert any(text.startswith(f"{label}, real packets: ") for text in seen), seen
    kept = [json.loads(line) for line in (folder / live.FILE).read_text().splitlines()]
    looks = [record for record in kept if "run" in record]
    assert {record["run"] for record in looks} == {2, 3}
    assert sum("load" in record for record in looks) >= 4
    assert any("guard" in record for record in looks)
    rewires = [r["epoch"] for record in looks for r in record["rewires"]]
    assert rewires == [r["epoch"] for r in summary["runs"][1]["rewires"]]
    sends = len(told(page.content())["flows"]["id"])
    for i, run in enumerate(summary["runs"]):
        mine = [flow for record in looks if record["run"] == 2 + i for flow in record["flows"]]
        done = {flow: end for flow, _, end in mine if end is not None}
        assert len(done) == sends and max(done.values()) == pytest.approx(run["step_s"])


def doing(page):
    """What a page says is under way, asked again where the report takes its place meanwhile."""
    from playwright.sync_api import Error

    try:
        return page.locator("#doing").all_inner_texts()
    except Error as error:
        assert "navigation" in str(error)
        page.wait_for_load_state()
        return page.locator("#doing").all_inner_texts()


def followed(watched, out, trace):
    """(exit code, its page at the end, what the page said by and by) of one emulation."""
    small = "pods=2,tors=2,gpus=2"
    line = f"replay {trace} --engine emulate --topo fat-tree,{small} --topo rfabric,{small} --live"
    words = [sys.executable, "-m", "rfabric", *line.split(), *SCALE.split(), "--out", str(out)]
    env = os.environ | {"PYTHONPATH": str(Path(live.__file__).parents[2])}
    seen = {}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env) as run:
        address = run.stderr.readline().split()[-1]
        drained, _ = aside(run.stderr.read)
        page = watched(address)
        while texts := doing(page):  # none: it is the report now
            seen[texts[0]] = True
            if texts[0].startswith("The run has ended"):
                break
            page.wait_for_timeout(50)
        else:
            page.wait_for_selector("html[data-ready]")
        code = run.wait(PATIENCE)
    drained.join(PATIENCE)
    with pytest.raises(OSError):
        get(address)
    return code, page, seen
