"""Traces that tests make by hand or draw at random."""

from hypothesis import strategies as st

from rfabric.trace import Flows, PhaseKey, TraceBuilder

HOSTS = [f"h{i + 1}" for i in range(8)]


def small():
    b = TraceBuilder(["h1", "h2", "h9"])
    work = b.compute(0, 12.5, phase="training", label="backward")
    sends = b.flows([0, 2], [2, 0], 6.4e9, after=[work], phase="training", label="reduce-scatter")
    b.compute(0, 0.8, after=sends, phase="training", label="optimizer")
    b.flows([0], [1], [1000.2], start=3.0, step=1, phase="weight_sync", label="weights")
    return b.build({PhaseKey(1, "weight_sync"): 0.25}, {"recipe": "by, hand", "seed": 3})


def looped(repeat=3, between=(2.0, 0.5), beside=(0.0, 1.0)):
    """Computing, then a loop of dispatch and combine, then a flow that waits for one of its
    rows.
    """
    b = TraceBuilder(HOSTS)
    work = b.compute(0, 4.0, phase="training", label="backward")
    turns = [Flows([0, 1], [2, 3], [1e6, 2e6]), Flows([2], [0], [3e6])]
    rows = b.loop(
        turns,
        repeat,
        between,
        beside,
        after=[work],
        gap=1.0,
        phase="training",
        label=("dispatch", "combine"),
    )
    b.flows([0], [5], 5e6, after=[rows[0]], phase="training", label="gradients")
    return b.build({PhaseKey(0, "training"): 9.0}, {"recipe": "by hand"})


@st.composite
def traces(draw, hosts=8, most=3):
    """Traces of a few rows and loops, each waiting for some before it."""
    b, rows = TraceBuilder(HOSTS[:hosts]), []
    seconds, size = st.sampled_from([0.0, 0.25, 1.0]), st.integers(1, 4).map(lambda n: n * 1e9)
    for _ in range(draw(st.integers(1, 5))):
        after = draw(st.lists(st.sampled_from(rows), max_size=2, unique=True)) if rows else []
        kind = {
            "after": after,
            "gap": draw(seconds),
            "phase": "training",
            "label": draw(st.sampled_from("ab")),
        }
        kind["start"] = draw(seconds)
        if draw(st.booleans()):
            turns = [draw(collective(hosts, size)) for _ in range(draw(st.integers(1, most)))]
            k = len(turns)
            between, beside = (draw(st.lists(seconds, min_size=k, max_size=k)) for _ in range(2))
            rows += b.loop(turns, draw(st.integers(1, 5)), between, beside, **kind)
        else:
            rows += b.flows(*draw(collective(hosts, size)), **kind)
    return b.build()


def collective(hosts, size):
    """One to four flows between different hosts."""
    pair = st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)).filter(
        lambda p: p[0] != p[1]
    )
    flows = st.lists(st.tuples(pair, size), min_size=1, max_size=4)
    return flows.map(
        lambda drawn: Flows(
            [p[0] for p, _ in drawn], [p[1] for p, _ in drawn], [s for _, s in drawn]
        )
    )
