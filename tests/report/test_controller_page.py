"""The page that follows a controller: its records are the looks', it outlives years, and a browser
can read it.
"""

import base64
import contextlib
import json
import os
import queue
import threading
import time

import pytest
from test_live_page import PATIENCE, clock, figure, get, stream, wait_for
from test_page import HOSTILE, told

from rfabric.fabric import Fabric, parse_fabric, rfabric
from rfabric.optics import Circuits, Demand, Rewire, optical_paths, parse_policy
from rfabric.report import controller, live
from rfabric.report.page import server
from rfabric.report.page.records import light_paths

FABRIC = rfabric(pods=2, tors=2, gpus=2)
USUAL = parse_policy("static", FABRIC).decide(Demand.none(FABRIC.racks), Circuits(), 0.0)
OTHER = Circuits(c for c in USUAL if c.a.node != "a1")
BEGAN = 1000.0
HEALTH = {"waiting_for": [], "out": [], "dark_ports": [], "expected": 17, "epoch": 5, "trouble": ""}


def first(fabric=FABRIC):
    return {
        "fabric": fabric.to_json(), "circuits": USUAL.to_json() if fabric.ocses else [],
        "epoch": 5, "routing": "ecmp", "at_s": BEGAN,
    }  # fmt: skip


def plan(epoch, at, old, new, error="", done=True):
    """A rewire as a controller tells it, requested `at` s after the beginning."""
    times = [BEGAN + at + more for more in (0.0, 0.001, 0.026, 0.027)]
    keys = "requested_s", "programmed_s", "dark_until_s", "usable_s"
    rewire = Rewire.between(old, new)
    instants = dict(zip(keys, times if done else [times[0], None, None, None], strict=True))
    words = {"why": "asked for", "phase": "training", "error": error, "lost_bytes": 3}
    return instants | words | rewire.to_json() | {"epoch": epoch, "circuits_changed": rewire.size}


def look(at, ended=(), under_way=None, level=100, fabric=FABRIC, **health):
    column = bytes([level]) * 2 * len(fabric.links)
    load = {"span_s": [BEGAN + at - 1, BEGAN + at], "to_hosts_bps": 8e9 * level}
    load["levels"] = base64.b64encode(column).decode()
    return {
        "at_s": BEGAN + at, "health": HEALTH | health, "ended": list(ended),
        "under_way": under_way, "load": load,
    }  # fmt: skip


LOOKS = [
    look(1.0),
    look(2.0, [plan(6, 1.2, USUAL, OTHER), plan(7, 1.5, OTHER, USUAL)]),
    look(3.0, [plan(8, 2.5, USUAL, OTHER, error="a1 did not answer")], level=0),
    look(4.0, under_way=plan(9, 3.99, USUAL, OTHER, done=False), level=200),
    look(5.0, [plan(9, 3.99, USUAL, OTHER)], epoch=9),
]


# --- records --------------------------------------------------------------------------------------


def test_the_page_holds_the_fabric_and_the_circuits_of_the_beginning():
    data = told(controller.Followed(first(), "rfabric control --live").page().decode())
    (row,) = data["runs"]
    c = row["circuits"]
    assert [n[0] for n in row["nodes"]] == [n.name for n in FABRIC.nodes]
    assert len(row["links"]) == len(FABRIC.links) and row["directed"] == 2 * len(FABRIC.links)
    assert Circuits.from_json(c["names"]) == USUAL and c["epochs"] == [5] and c["times"] == [0.0]
    drawn = {(c["racks"][a], c["racks"][b], tuple(over)) for a, b, _, over in c["paths"]}
    lit = [p for p in optical_paths(FABRIC, USUAL) if p.out < p.into]
    assert drawn == {(p.out.node, p.into.node, p.links) for p in lit}
    assert row["cost"]["network_usd"] > 0 and row["cost"]["usd_per_step"] is None
    assert data["command"] == "rfabric control --live"


def test_looks_become_the_words_of_a_live_page():
    one = controller.Followed(first(), "")
    heard = [one.record(x) for x in LOOKS]
    assert [r["clock_s"] for r in heard] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [[r["epoch"] for r in x["rewires"]] for x in heard] == [[], [6, 7], [8], [], [9]]
    lit = [(c["epoch"], Circuits.from_json(c["names"])) for x in heard for c in x["circuits"]]
    assert lit == [(6, OTHER), (7, USUAL), (9, OTHER)]
    assert [c["time_s"] for c in heard[1]["circuits"]] == pytest.approx([1.227, 1.527])
    back = heard[2]["rewires"][0]
    assert back["why"] == "rolled back: a1 did not answer" and back["exposed_s"] is None
    going = heard[3]["under_way"]
    assert going["requested_s"] == pytest.approx(3.99) and going["usable_s"] == 4.0
    assert heard[0]["load"]["spans"] == [[0.0, 1.0]]
    assert heard[0]["said"] == (
        "all 17 switches hold their rules; epoch 5; 100 GB a second reach the hosts"
    )


def test_the_sentence_names_what_is_missing_and_out_of_order():
    one = controller.Followed(first(), "")
    names = [f"t{i}" for i in range(8)]
    told = look(1, waiting_for=names, out=["a1"], dark_ports=["a2:3"], trouble="<b> is no switch")
    said = one.record(told)["said"]
    assert said.startswith("waiting for t0, t1, t2, t3, t4, t5 and 2 more; epoch 5; ")
    assert said.endswith("; out of order: a1, a2:3; <b> is no switch")


def test_a_fabric_without_circuits_or_prices_has_its_page():
    packets = parse_fabric("fat-tree,k=4")
    (row,) = told(controller.Followed(first(packets), "").page().decode())["runs"]
    assert row["circuits"] is None and not row["optical"]
    fast = Fabric.from_json(FABRIC.to_json())
    links = [link | {"rate_bps": 9e15} for link in fast.to_json()["links"]]
    fast = Fabric.from_json(fast.to_json() | {"links": links})
    (row,) = told(controller.Followed(first(fast), "").page().decode())["runs"]
    assert row["cost"]["network_usd"] is None


# --- the process ----------------------------------------------------------------------------------


@contextlib.contextmanager
def followed(most=controller.MOST_BYTES, fabric=FABRIC, command=""):
    """A page served in this process: its address, a queue of looks, and the server."""
    looks, kept, listener = queue.Queue(), controller.Kept(most), live.listening(0)
    one = server.LiveServer(listener, "secret", b"waiting", server.Records(kept.file.fileno()))
    threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()

    def lines():
        while (told := looks.get()) is not None:
            yield json.dumps(told).encode() + b"\n"

    def serve():
        controller.follow(lines(), one, kept, command)
        one.end({"error": controller.ENDED})

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    looks.put(first(fabric))
    try:
        yield live.address(listener, "secret"), looks, one
    finally:
        looks.put(None)
        serving.join(PATIENCE)
        one.shutdown()
        one.server_close()


def drained(looks):
    end = time.monotonic() + PATIENCE
    while not looks.empty():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_who_comes_late_hears_all_of_it():
    with followed() as (address, looks, _):
        for one in LOOKS:
            looks.put(one)
        looks.put(None)
        records, _, last = stream(address)
    assert records[0] == controller.BEGIN and len(records) == 1 + len(LOOKS)
    assert last == {"error": controller.ENDED, "report": False}


def test_records_begin_anew_before_they_fill_the_disk():
    """A page that was open all the while, and one that comes late, both know what is lit."""
    with followed(most=40_000) as (address, looks, one):
        early = []
        reading = threading.Thread(target=lambda: early.append(stream(address)), daemon=True)
        reading.start()
        both = [OTHER, USUAL]
        for i in range(1500):
            rewire = plan(6 + i, i, both[(i + 1) % 2], both[i % 2])
            looks.put(look(i + 1.0, [rewire]))
            if i % 100 == 0:
                drained(looks)
        drained(looks)
        size = os.fstat(one.records.file).st_size
        looks.put(None)
        late, *_ = stream(address)
        reading.join(PATIENCE)
    assert size < 45_000
    for records in (late, early[0][0]):
        begun = max(i for i, record in enumerate(records) if record == controller.BEGIN)
        mine = [c for record in records[begun:] for c in record.get("circuits", ())]
        assert begun == 0 or records is not late
        assert mine[-1]["epoch"] == 1505 and Circuits.from_json(mine[-1]["names"]) == USUAL


def test_a_look_that_was_cut_short_ends_it():
    kept = controller.Kept()
    lines = [json.dumps(first()).encode() + b"\n", b'{"at_s": 17.', b"never read\n"]
    one = type("Server", (), {"page": b""})()
    controller.follow(iter(lines), one, kept, "")
    assert b"under control" in one.page


# --- a browser ------------------------------------------------------------------------------------


def test_a_browser_follows_a_controller_to_its_end(watched):
    with followed(command="rfabric control --live") as (address, looks, _):
        wait_for_page(address)
        page = watched(address)
        for one in LOOKS[:2]:
            looks.put(one)
        wait_for(page, lambda: clock(page) == pytest.approx(2.0, abs=1e-3))
        assert "epoch 7" in page.inner_text("#instant")
        assert figure(page, "rfabric", "rewires so far") == "2"
        for one in LOOKS[2:]:
            looks.put(one)
        wait_for(page, lambda: clock(page) == pytest.approx(5.0, abs=1e-3))
        assert "all 17 switches hold their rules" in page.inner_text("#doing")
        assert "epoch 9" in page.inner_text("#instant")
        assert "null" not in page.inner_text("body") and "NaN" not in page.inner_text("body")
        heads = page.locator("#live th").all_inner_texts()
        assert "flows in flight" not in heads and "$ a step" not in heads
        page.evaluate("document.querySelector('.over-dark').dispatchEvent("
                      "new MouseEvent('click', {bubbles: true}))")  # fmt: skip
        wait_for(page, lambda: "whether flows waited is not known" in page.inner_text("#reading"))
        narrow = watched(address, 420)
        wait_for(narrow, lambda: clock(narrow) == pytest.approx(5.0, abs=1e-3))
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 420
        looks.put(None)
        wait_for(page, lambda: page.inner_text("#doing") == controller.ENDED)


LONG = parse_fabric("rfabric,pods=2,tors=2,gpus=2,rate=100Mbit/s,electrical=10Mbit/s,delay=25ms")


def test_what_a_rewire_under_way_takes_down_is_dark_on_the_page(watched):
    """And the legend, which knew of no rewire before, says how one is drawn."""
    usual, other = ({p[:2] for p in light_paths(LONG, lit)} for lit in (USUAL, OTHER))
    going = plan(6, 2.2, USUAL, OTHER, done=False) | {"programmed_s": BEGAN + 2.3}
    with followed(fabric=LONG) as (address, looks, _):
        wait_for_page(address)
        page = watched(address, 420)
        looks.put(look(2.0, fabric=LONG))
        wait_for(page, lambda: clock(page) == pytest.approx(2.0, abs=1e-3))
        assert not page.locator("#fabric .path.dark").count()
        assert "rewire" not in page.inner_text("#keys")
        looks.put(look(3.0, under_way=going, fabric=LONG))
        wait_for(page, lambda: "dark: rewire 6" in page.inner_text("#instant"))
        drawn = page.locator("#fabric .path").count()
        assert page.locator("#fabric .path.dark").count() == drawn - len(usual & other) > 0
        wait_for(page, lambda: "rewire (hatched)" in page.inner_text("#keys"))
        assert "rewire 6" in page.text_content("#zoom")
        assert page.evaluate("document.documentElement.scrollWidth") <= 420


def test_axe_finds_nothing_serious(browser):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with followed() as (address, looks, _):
        wait_for_page(address)
        page = browser.new_context(bypass_csp=True).new_page()
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        for one in LOOKS:
            looks.put(one)
        wait_for(page, lambda: clock(page) == pytest.approx(5.0, abs=1e-3))
        wrong = axe.Axe().run(page).response["violations"]
        assert not [v for v in wrong if v["impact"] in ("serious", "critical")]


def wait_for_page(address):
    end = time.monotonic() + PATIENCE
    while get(address)[1] == "waiting":
        assert time.monotonic() < end
        time.sleep(0.02)


def test_hostile_words_of_a_switch_stay_words(watched):
    with followed(command=HOSTILE) as (address, looks, _):
        wait_for_page(address)
        page = watched(address)
        looks.put(look(1.0, [plan(6, 0.2, USUAL, OTHER, error=HOSTILE)], trouble=HOSTILE))
        wait_for(page, lambda: HOSTILE in page.inner_text("#doing"))
        assert page.title() != "taken" and not page.locator("img").count()


def test_loads_are_those_of_the_last_look(watched):
    with followed() as (address, looks, _):
        wait_for_page(address)
        page = watched(address)
        for one in LOOKS[:3]:
            looks.put(one)
        wait_for(page, lambda: clock(page) == pytest.approx(3.0, abs=1e-3))
        drawn = page.locator("#fabric .cable").count()
        assert page.locator("#fabric .cable.idle").count() == drawn > 0
        looks.put(LOOKS[3])
        wait_for(page, lambda: clock(page) == pytest.approx(4.0, abs=1e-3))
        assert not page.locator("#fabric .cable.idle").count()
