"""Decisions pinned: closed forms, hand-made figures, brute force, small enough to follow by eye."""

import doctest
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from few_racks import CIRCUITS, FOUR, LONELY, RATE, THIN, TWO_PODS, Fixed, asks, lit, matchings_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rfabric.control.schema import demand as read_demand
from rfabric.control.schema import demand_json
from rfabric.fabric import fat_tree, parse_fabric, rfabric
from rfabric.fabric.cabling import cabling_of
from rfabric.optics import (
    Circuits,
    Demand,
    Rewire,
    RewireRecord,
    Timing,
    arrival,
    changed_cables,
    circuits,
    intend,
    joined,
    light,
    parse_policy,
    planes,
    planner,
    policies,
    regions,
)
from rfabric.optics.bound import bound
from rfabric.optics.check import faults_during
from rfabric.optics.circuits import together
from rfabric.optics.outlook import (
    KEPT_DEMANDS,
    Begins,
    Gain,
    Load,
    Outlook,
    Prospect,
    _left,
    gain,
    gain_later,
    gained,
)
from rfabric.optics.planner import STAY, Decision, _at_stake, cable_mask, refusal, refuse_cut, turn
from rfabric.optics.policies import drain_seconds
from rfabric.optics.rewiring import Rewiring
from rfabric.optics.templates import mesh, round_of, turns
from rfabric.routing import light_paths, routes_of
from rfabric.routing.schemes import Routing
from rfabric.units import transfer_seconds

# --- what is written is read ----------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(CIRCUITS, CIRCUITS)
def test_circuits_and_rewires_are_read_as_they_were_written(old, new):
    assert Circuits.from_json(old.to_json()) == old
    rewire = Rewire.between(old, new)
    assert Rewire.from_json(rewire.to_json()) == rewire and rewire.apply(old) == new
    assert Rewire.between(old, new).size == len(old.items ^ new.items)


SECONDS = st.floats(0, 1e9)


@settings(max_examples=20, deadline=None)
@given(
    st.builds(
        RewireRecord, st.integers(1, 99), st.sampled_from(["", "a\nb"]),
        SECONDS, SECONDS, SECONDS, SECONDS,
        st.integers(0, 99), st.integers(0, 1 << 40), st.sampled_from(["", "x: y"]), SECONDS,
    )
)  # fmt: skip
def test_the_record_of_a_rewire_is_read_as_it_was_written(record):
    assert RewireRecord.from_json(record.to_json()) == record
    waited = record.usable - record.requested
    assert record.hidden == max(waited - record.exposed, 0.0)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(1, 1e15)), max_size=9),
    st.sampled_from([0.5, float("inf")]),
    SECONDS,
    st.sampled_from([(), (1,), (1, 3)]),
)
def test_a_demand_is_read_as_it_was_written(entries, window, seconds, follows):
    told = {"floor": seconds, "lead": seconds / 3, "ahead": seconds / 7, "follows": follows}
    wanted = asks(TWO_PODS, *entries, window=window, phase="training", **told)
    again = read_demand(demand_json(wanted), TWO_PODS, "demand")
    assert (again.bytes == wanted.bytes).all() and again.racks == wanted.racks
    for name in ("window", "phase", *told):
        assert getattr(again, name) == getattr(wanted, name), name


def test_demands_together_are_summed_and_keep_what_each_of_them_needs():
    """The longest window, the shortest lead and the highest floor, whichever comes first."""
    one = asks(FOUR, (0, 1, 1e9), (1, 2, 5e8), window=3.0, floor=0.2, lead=0.5, phase="a")
    two = asks(FOUR, (0, 1, 2e9), (3, 0, 7e8), window=2.0, floor=0.4, lead=0.1, phase="b")
    for some in ((one, two), (two, one)):
        all_of_it = together(some)
        assert (all_of_it.bytes == one.bytes + two.bytes).all()
        assert (all_of_it.window, all_of_it.floor, all_of_it.lead) == (3.0, 0.4, 0.1)
        assert all_of_it.phase == some[0].phase


def test_the_examples_of_docstrings_hold():
    done = doctest.testmod(circuits)
    assert done.attempted and not done.failed


# --- timing and the window rule -------------------------------------------------------------------


def test_a_rewire_takes_control_delay_and_settling_and_the_guard_on_top():
    fabric, timing = parse_fabric("rfabric,delay=8s"), Timing(control=1, settle=2, guard=4)
    assert (timing.takes(fabric), timing.least_window(fabric)) == (11.0, 15.0)


def test_a_window_must_be_longer_than_a_rewire_takes_not_as_long():
    policy, start = parse_policy("demand", LONELY), lit(LONELY, [(0, 1)], [(0, 1)])
    least = Timing().least_window(LONELY)
    just, longer = (
        intend(LONELY, policy, asks(LONELY, (0, 1, 1e10), window=window), start, 0.0)
        for window in (least, np.nextafter(least, 1))
    )
    assert just.why == "window 16 ms is not above 16 ms: circuits stay"
    assert not longer.rewire and "window" not in longer.why
    lighting = intend(LONELY, policy, asks(LONELY, (0, 1, 1e10), window=0.0), Circuits(), 0.0)
    assert lighting.rewire  # where nothing is lit the rule has nothing to keep


@pytest.mark.parametrize(("slot", "turns_on"), [(0.016, False), (0.0161, True)])
def test_a_cycle_turns_where_its_slot_is_longer_than_a_turn_takes(slot, turns_on):
    old, new = lit(LONELY, [(0, 1)]), lit(LONELY, [(0, 2)])
    decision = turn(LONELY, "rotor", new, slot, old, Timing())
    assert bool(decision.rewire) == turns_on
    assert decision.circuits == (new if turns_on else old)
    same = turn(LONELY, "rotor", old, slot, old, Timing())
    assert not same.rewire and same.why == "circuits already fit"


def test_what_no_rewire_could_save_is_not_at_stake():
    """10 s of which cards need 4; then 5 s of which cards need 1, its dark time of 3 s hidden but
    for 1 s.
    """
    now, later = (Outlook(np.array([[seconds, 0.0]]), np.array([0.0])) for seconds in (10.0, 5.0))
    stay = Prospect(now, lambda: later)
    sends, comes = asks(FOUR, (0, 1, 1.0), floor=4.0), asks(FOUR, (0, 1, 1.0), floor=1.0, lead=2.0)
    assert _at_stake(stay, [sends], [comes], 3.0) == pytest.approx(6.0 + 1.0)
    assert _at_stake(stay, [sends], [comes], 9.0) == pytest.approx(6.0 + 4.0)
    assert _at_stake(stay, [sends], [comes], 1.0) == pytest.approx(6.0)
    slow = asks(FOUR, (0, 1, 1.0), floor=99.0)
    assert _at_stake(stay, [slow], [comes], 3.0) == pytest.approx(1.0)
    # what comes is looked at unless what sends has more than enough at stake by itself
    assert _at_stake(stay, [sends], [comes], 3.0, enough=6.0) == pytest.approx(7.0)
    assert _at_stake(stay, [sends], [comes], 3.0, enough=5.9) == pytest.approx(6.0)


def test_the_candidate_that_gains_most_is_taken_and_the_next_best_kept():
    """A pair on the thin cable: two circuits serve it in an eighth of the time, one in a fourth."""
    two, one, none = lit(FOUR, [(0, 1)], [(0, 1)]), lit(FOUR, [(0, 1)]), lit(FOUR, [(2, 3)])
    wanted = asks(FOUR, (0, 1, 1e12))
    decision = intend(FOUR, Fixed(one), wanted, Circuits(), 0.0, also=[none, two])
    assert decision.circuits == two and decision.others == (one,)
    assert decision.why == "fixed: 2 circuits change" and not decision.wait
    assert decision.rewire == Rewire(Circuits(), two)
    alone = intend(FOUR, Fixed(none), wanted, Circuits(), 0.0)
    assert not alone.rewire and alone.why == refusal(0.0) and not alone.others


def test_circuits_stay_where_a_rewire_gains_no_more_than_the_guard():
    """The thin cable takes 8 s a terabit, a circuit 2 s: what is gained is known to the second."""
    size = 1e12
    saves = transfer_seconds(size, THIN) - transfer_seconds(size, RATE)
    takes = Timing(guard=0.0).takes(FOUR)
    for guard, moves in ((saves - takes - 1e-6, True), (saves - takes + 1e-6, False)):
        timing = Timing(guard=guard)
        decision = intend(
            FOUR,
            Fixed(lit(FOUR, [(0, 1)])),
            asks(FOUR, (0, 1, size)),
            Circuits(),
            0.0,
            timing=timing,
        )
        assert bool(decision.rewire) == moves
        assert moves or decision.why.startswith("predicted to end")


class Noting:
    """A policy that keeps what it is asked: how many racks send to each other, and what follows."""

    name = "noting"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def decide(self, demand, circuits, now, upcoming=()):
        self.asked.append((demand.sent.bytes.tolist(), len(upcoming), now))
        return self.answer


@pytest.mark.parametrize("ahead", [4, 3])
def test_a_policy_is_asked_for_all_that_sends_with_what_comes_and_for_what_begins(
    ahead, monkeypatch
):
    """What comes is taken together with the rest up to so many racks, here four."""
    monkeypatch.setattr(planner, "MOST_RACKS_AHEAD", ahead)
    begins, sends, comes = (asks(FOUR, (0, i, i * 1e12)) for i in (1, 2, 3))
    together = [[1e12, 2e12, 3e12]] if ahead == 4 else []
    for sending, coming, asked in (
        ([sends], [comes], [[1e12, 2e12], *together, [1e12]]),
        ([sends], [], [[1e12, 2e12], [1e12]]),
        ([], [], [[1e12]]),
    ):
        policy = Noting(lit(FOUR, [(0, 1)]))
        intend(FOUR, policy, begins, Circuits(), 7.0, coming, sending=sending)
        assert policy.asked == [(each, len(coming), 7.0) for each in asked]


def test_before_the_job_a_rewire_is_worth_any_gain():
    """Nothing is dark then, so no guard: 0.75 ms are gained."""
    size = 1e-3 * THIN / 8  # bytes that the thin cable carries in 1 ms, a circuit in 0.25 ms
    wanted, policy = asks(FOUR, (0, 1, size)), Fixed(lit(FOUR, [(0, 1)]))
    assert intend(FOUR, policy, wanted, Circuits(), 0.0, dark=0.0).rewire
    assert not intend(FOUR, policy, wanted, Circuits(), 0.0, dark=1e-9).rewire


def test_nobody_is_asked_where_nothing_is_at_stake():
    """Nothing is sent, or cards need as long as the thin cable."""
    policy, size = Noting(lit(FOUR, [(0, 1)])), 1e12
    busy = transfer_seconds(size, THIN)
    for wanted in (asks(FOUR), asks(FOUR, (0, 1, size), floor=busy)):
        decision = intend(FOUR, policy, wanted, Circuits(), 0.0, dark=0.0)
        assert not decision.rewire and decision.why == "circuits already fit"
    assert not policy.asked
    slower = asks(FOUR, (0, 1, size), floor=0.99 * busy)
    assert intend(FOUR, policy, slower, Circuits(), 0.0, dark=0.0).rewire and policy.asked


def test_circuits_that_stay_say_what_a_rewire_would_have_changed():
    """A gain below the guard is sooner all the same, however small."""
    for seconds, text in ((0.5, "500 ms sooner"), (-0.5, "500 ms later"), (2e-3, "2 ms sooner")):
        assert refusal(seconds) == f"predicted to end {text}: circuits stay"
    assert refusal(-np.inf) == "would cut off what is in flight: circuits stay"


def test_before_the_job_what_gains_nothing_is_no_next_best():
    two, one, none = lit(FOUR, [(0, 1)], [(0, 1)]), lit(FOUR, [(0, 1)]), lit(FOUR, [(2, 3)])
    wanted = asks(FOUR, (0, 1, 1e12))
    decision = intend(FOUR, Fixed(one), wanted, Circuits(), 0.0, dark=0.0, also=[none, two])
    assert decision.circuits == two and decision.others == (one,)


def test_what_a_decision_lets_arrive_when_is_told_of_what_begins():
    """1 TB takes 80 s on the thin cable and 20 s on a circuit, half of it half as long; who sends
    more than another on the same link has that one's time on top of its own.
    """
    size = 1e12
    slow, fast = transfer_seconds(size, THIN), transfer_seconds(size, RATE)
    one = lit(FOUR, [(0, 1)])
    stays = Decision(STAY, "", Circuits())
    goes = Decision(Rewire.between(Circuits(), one), "", one)
    whole, half = asks(FOUR, (0, 1, size)), asks(FOUR, (0, 1, size / 2))
    late = replace(whole, lead=4.0)
    for decision, demand, beside, dark, seconds in (
        (stays, whole, [], 3.0, slow),
        (stays, late, [], 3.0, slow + 4),
        (stays, whole, [half], 3.0, 1.5 * slow),
        (stays, half, [whole], 3.0, slow),
        (goes, whole, [], 3.0, fast + 3),
        (goes, late, [], 3.0, fast + 4),
        (goes, whole, [half], 3.0, 1.5 * fast + 3),
        (goes, asks(FOUR, (2, 3, size)), [whole], 3.0, slow),
    ):
        told = arrival(FOUR, Circuits(), decision, demand, beside, dark)
        assert told == pytest.approx(seconds)
    cut = asks(LONELY, (2, 3, size))
    assert arrival(LONELY, lit(LONELY, [(0, 1)]), stays, cut) == float("inf")


def test_who_begins_without_a_way_waits_for_those_who_send():
    """Neither may be cut off: t1 sends to t2 on both planes' circuits, t3 begins to send to t1."""
    start = lit(LONELY, [(0, 1)], [(0, 1)])
    sending, begins = asks(LONELY, (0, 1, 1e12)), asks(LONELY, (2, 0, 1e12))
    decision = intend(LONELY, Fixed(lit(LONELY, [(0, 2)])), begins, start, 0.0, sending=[sending])
    assert decision.wait and not decision.rewire
    assert decision.why == "would cut off what is in flight: circuits stay"


def test_a_cut_is_named_with_its_racks_and_counted():
    wanted = asks(LONELY, (0, 1, 1.0), (1, 0, 1.0), (2, 3, 1.0))
    with pytest.raises(Exception, match="disconnects 2 pairs of racks with demand, first t1 -> t2"):
        refuse_cut(LONELY, lit(LONELY, [(2, 3)]), [wanted])
    refuse_cut(LONELY, lit(LONELY, [(2, 3)], [(0, 1)]), [wanted])


@settings(max_examples=20, deadline=None)
@given(CIRCUITS, CIRCUITS)
def test_the_cables_that_change_are_those_at_ports_that_change(old, new):
    mask = cable_mask(TWO_PODS, old, new)
    assert set(np.flatnonzero(mask).tolist()) == changed_cables(TWO_PODS, Rewire.between(old, new))


# --- outlooks -------------------------------------------------------------------------------------


def load(*flows):
    """Flows of one link each: (directed link, seconds on a cable of 400 Gbit/s, kind)."""
    links, seconds, kind = zip(*flows, strict=True)
    size = np.array(seconds) * RATE / 8
    way = np.arange(len(flows)), np.ones(len(flows), np.int64), np.array(links)
    return Load(*way, size, np.array(kind))


def test_kinds_follow_one_another_and_what_is_of_one_kind_goes_at_once():
    fabric = LONELY
    fast = [i for i, cable in enumerate(fabric.links) if cable.rate == RATE]
    a, b = 2 * fast[0], 2 * fast[1]
    (one,) = (Outlook.of_flows(fabric, [load((a, 3.0, 0), (b, 5.0, 0), (a, 1.0, 1), (b, 7.0, 2))]),)
    assert one.seconds[0, a] == pytest.approx(4.0) and one.seconds[0, b] == pytest.approx(12.0)
    assert one.least[0] == pytest.approx(5.0 + 1.0 + 7.0)
    beyond = Outlook.of_flows(fabric, [load((2 * len(fabric.links), 1.0, 0))])
    assert np.isinf(beyond.least[0]) and np.isinf(beyond.alone[0])


def test_stages_share_a_link_equally_and_the_shorter_has_gone_before():
    outlook = Outlook(np.array([[4.0, 0.0], [1.0, 6.0], [0.0, 2.0]]), np.array([0.0, 0.0, 9.0]))
    assert outlook.ends.tolist() == [5.0, 8.0, 9.0]
    assert outlook.alone.tolist() == [4.0, 6.0, 9.0]


def test_what_comes_is_told_by_its_place_in_line():
    here = [asks(FOUR, (0, 1, 1.0), lead=0.5)] * 2
    comes = [asks(FOUR, (0, 1, 1.0), follows=n, ahead=3.0) for n in ((1,), (3, 2), (), (99,))]
    begins = Begins.of(here, comes)
    assert begins.follows == ((1,), (0, 1), (), ())
    assert begins.now.tolist() == [0.5, 0.5] and begins.ahead.tolist() == [3.0] * 4


def outlook_of(*rows):
    return Outlook(np.array(rows, dtype=float), np.zeros(len(rows)))


def test_the_last_to_end_is_sought_among_all_that_send_or_come():
    """The one that sends ends 4 s sooner, what comes on its own 1 s later: it is last, its delay
    counts alone.
    """
    before = Prospect(outlook_of([9, 0, 0, 0]), lambda: outlook_of([0, 0, 20, 0]))
    after = Prospect(outlook_of([5, 0, 0, 0]), lambda: outlook_of([0, 0, 21, 0]))
    told = Begins(np.zeros(1), np.zeros(1), np.zeros(1), ((),))
    dark_free = np.array([False, False])
    # at no price it may have the circuits of before again: then nothing is lost
    assert gain(before, after, told, dark_free, 0.0) == Gain(4.0, 0.0)
    assert gain(before, after, told, dark_free, 5.0).seconds == pytest.approx(-1.0)
    swapped = gain(after, before, told, dark_free, 5.0)
    assert (swapped.seconds, swapped.later) == (pytest.approx(-4 + 1), pytest.approx(1.0))


def test_a_gain_without_a_way_is_never_or_always():
    some, none = np.array([1.0]), np.array([np.inf])
    assert gained(some, none) == -np.inf and gained(none, some) == np.inf
    assert gained(none, none) == -np.inf and gained(some, some) == 0.0


def test_whoever_gets_a_way_gains_always_whatever_comes():
    """What has no way now ends sooner by more than any number; what comes cannot change that."""
    comes = Prospect(outlook_of([np.inf]), lambda: outlook_of([2.0]))
    goes = Prospect(outlook_of([1.0]), lambda: outlook_of([5.0]))
    told = Begins(np.zeros(1), np.zeros(1), np.zeros(1), ((),))
    untouched = np.array([False])
    assert gain(comes, goes, told, untouched, 9.0) == Gain(np.inf)
    assert gain(goes, comes, told, untouched, 9.0) == Gain(-np.inf)


def test_what_is_sent_evenly_is_left_by_the_share_of_its_time_to_go():
    """Stages from 1 to 5 s, from 2 to 4 s, and from 3 s for ever: what each has left (row) as each
    begins (column).
    """
    left = _left(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, np.inf]))
    np.testing.assert_allclose(left, [[1, 3 / 4, 2 / 4], [1, 1, 1 / 2], [1, 1, 1]])


SECONDS = st.lists(st.tuples(*[st.floats(0, 50)] * 3), min_size=1, max_size=4)


@given(SECONDS, st.floats(0, 50))
def test_what_comes_gains_no_more_than_a_rewire_of_its_own_would_cost(stages, dark):
    """A stage that takes x s now and y s then, with `lead` s to hide the dark time in, gains x - y,
    but neither gains nor loses more than what of the dark time is left.
    """
    before, after, leads = (np.array(column) for column in zip(*stages, strict=True))
    exposed = np.maximum(dark - leads, 0.0)
    expected = np.clip(before - after, -exposed, exposed).sum()
    told = gain_later(
        *(outlook_of(*some[:, None]) for some in (before, after)), leads=leads, dark=dark
    )
    assert told == pytest.approx(expected, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(matchings_of(LONELY), st.tuples(*[st.integers(0, 3)] * 4))
def test_rack_outlooks_are_the_drain_times_of_their_demands(pairs, ends):
    a, b, c, d = ends
    assume(a != b and c != d)
    circuits = lit(LONELY, *pairs)
    wanted = [asks(LONELY, (a, b, 3e11)), asks(LONELY, (c, d, 1e11))]
    outlook = Outlook.of_racks(LONELY, circuits, wanted)
    assert outlook.alone == pytest.approx([drain_seconds(LONELY, circuits, one) for one in wanted])


@settings(max_examples=20, deadline=None)
@given(
    st.lists(matchings_of(LONELY), min_size=2, max_size=3),
    st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=2, max_size=4 * KEPT_DEMANDS),
)
def test_what_is_foreseen_of_racks_is_their_outlook_however_often_it_is_asked_for(lights, asked):
    """A few circuits, pairs, sizes and floors in turn: the same, or all but one the same, again."""
    fabric = LONELY.named("asked again")
    for i, (a, far, size, floor) in enumerate(asked):
        circuits = lit(fabric, *lights[i % len(lights)])
        comes = [asks(fabric, (a, a + 1 + far % (3 - a), 1e9 * 2**size), floor=floor)] * 2
        foreseen = Prospect.of_racks(fabric, circuits, [], comes).later
        anew = Outlook.of_racks(fabric, circuits, comes)
        assert foreseen.alone.tolist() == anew.alone.tolist()
        assert np.array_equal(foreseen.cables, anew.cables)


# --- the contract ---------------------------------------------------------------------------------


def contract(**timing):
    made = Rewiring(LONELY, Timing(**timing), lit(LONELY, [(0, 1)]))
    wanted = lit(LONELY, [(0, 2)])
    made.begin("stage", np.array([0, 2]), 0.0)  # row 1 is another's
    made.take(Decision(Rewire.between(made.circuits, wanted), "test", wanted), 1.0)
    return made


@pytest.mark.parametrize(
    ("in_flight", "stops", "waits"),
    [("hold", [1, 2], set()), ("drain", [2], {1}), ("drop", [], set())],
)
def test_who_stands_still_and_who_is_waited_for(in_flight, stops, waits):
    made = contract(in_flight=in_flight)
    assert made.concern(np.array([1]), np.array([2])).tolist() == stops
    assert made.under_way.waits_for == waits and made.quiet == (not waits)
    made.finished(1)
    assert made.quiet and made.asking == ()
    assert made.under_way.stages == ("stage",) and made.under_way.rows.tolist() == stops


@pytest.mark.parametrize(("in_flight", "stops"), [("hold", [0, 1]), ("drain", [0]), ("drop", [])])
def test_who_asks_drains_the_others_and_not_himself(in_flight, stops):
    """Row 0 is of the stage that asks and under way already: it had a way for a part of itself."""
    made = Rewiring(LONELY, Timing(in_flight=in_flight), lit(LONELY, [(0, 1)]))
    wanted = lit(LONELY, [(0, 2)])
    made.begin("other", np.array([1]), 0.0)
    made.stay()
    made.begin("asks", np.array([0]), 0.5)
    made.take(Decision(Rewire.between(made.circuits, wanted), "test", wanted), 1.0)
    assert sorted(made.concern(np.array([0, 1]), np.zeros(0, np.int64)).tolist()) == stops
    assert made.under_way.waits_for == ({1} if in_flight == "drain" else set())


def test_what_met_the_dark_is_held_whatever_the_policy():
    made = contract(in_flight="drop")
    assert made.concern(np.array([1]), np.array([2]), dark=True).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("in_flight", "ready", "exposed"),
    [("hold", 0.0, 3.0), ("hold", 2.5, 1.5), ("drop", 0.0, 2.0), ("hold", np.nan, 0.0)],
)
def test_a_rewire_is_exposed_from_when_the_first_of_those_held_was_ready(in_flight, ready, exposed):
    made = contract(in_flight=in_flight)
    made.concern(np.array([1]), np.array([2]), dark=True)
    start = np.array([0.0, ready, np.nan])
    record = made.done(2.0, 3.0, 4.0, start, lost=7)
    assert record == RewireRecord(1, "stage", 1.0, 2.0, 3.0, 4.0, 2, 7, "test", exposed)
    assert (record.dark, record.hidden) == (2.0, 3.0 - exposed)
    assert made.under_way is None and not made.quiet
    assert made.epochs[-1] == (4.0, lit(LONELY, [(0, 2)])) and made.circuits == made.epochs[-1][1]


def test_who_has_no_way_asks_again_only_where_another_has_ended():
    made, finish = Rewiring(LONELY, Timing(), Circuits()), np.full(2, np.inf)
    made.begin("sends", np.array([0]), 0.0)
    made.stay()
    made.begin("waits", np.array([1]), 0.0)
    made.wait()
    made.ask_again(finish)
    assert made.asking == () and made.blocked == ["waits"]
    finish[0] = 1.0
    made.ask_again(finish)
    assert made.asking == ("waits",) and made.blocked == []


def test_a_decision_is_weighed_by_every_flow_before_its_next_best():
    """What gains most by the flows of the world is taken: the decision's own, circuits of before,
    then the others.
    """
    made = Rewiring(FOUR, Timing(), Circuits())
    one, two, bad = lit(FOUR, [(0, 1)]), lit(FOUR, [(0, 1)], [(0, 1)]), lit(FOUR, [(2, 3)])
    wanted = asks(FOUR, (0, 1, 1e12))
    begins = Begins.of([wanted], [])

    def prospect(some):
        return Prospect.of_racks(FOUR, some, [wanted], [])

    def weighed(first, also=(), others=()):
        rewire = Rewire.between(Circuits(), first)
        decision = Decision(rewire, "who: n circuits change", first, others=others)
        return made.weigh(decision, also, prospect, begins)

    assert weighed(one).circuits == one and weighed(one).why == "who: 1 circuits change"
    assert weighed(one, [two]).circuits == two and weighed(one, [two]).why.startswith("back: 2")
    other = lit(FOUR, [], [(0, 1)])  # gains as much: the first is taken
    assert weighed(one, [other]).circuits == one and weighed(other, [one]).circuits == other
    assert weighed(bad, others=(one, two)).circuits == one  # the order of the forecast
    stays = weighed(bad)
    assert not stays.rewire and stays.circuits == Circuits() and stays.why.endswith("circuits stay")
    assert weighed(Circuits(), [two]).circuits == two


def test_circuits_that_gain_nothing_are_not_lit_whatever_the_guard():
    """They join racks that send nothing."""
    made, idle = Rewiring(FOUR, Timing(guard=0.0), Circuits()), lit(FOUR, [(2, 3)])
    wanted = asks(FOUR, (0, 1, 1e12))
    proposed = Decision(Rewire.between(Circuits(), idle), "who: 1 circuits change", idle)
    stays = made.weigh(
        proposed,
        (),
        lambda some: Prospect.of_racks(FOUR, some, [wanted], []),
        Begins.of([wanted], []),
    )
    assert not stays.rewire and stays.circuits == Circuits() and stays.why == refusal(0.0)


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delay", "slot"), [("1ms", 0.1), ("10ms", 0.1), ("50ms", 0.5)])
def test_a_slot_lasts_ten_delays_and_a_tenth_of_a_second_at_least(delay, slot):
    fabric = parse_fabric(f"rotor,tors=4,gpus=2,delay={delay}")
    assert parse_policy("rotor", fabric).slot == pytest.approx(slot)


def test_a_rotor_lights_round_after_round_plane_after_plane():
    fabric = parse_fabric("rotor,tors=6,gpus=2")
    policy, count = parse_policy("rotor", fabric), len(planes(fabric))
    racks = fabric.racks
    every = [round_of(racks, turn) for turn in range(turns(len(racks)))]
    cycle = policy.cycle(Demand.none(fabric.racks), Circuits())
    assert len(cycle) == -(-len(every) // count)
    for i, slot in enumerate(cycle):
        wanted = {}
        for j in range(count):
            for pair in every[(i * count + j) % len(every)]:
                wanted[frozenset(pair)] = wanted.get(frozenset(pair), 0) + 1
        assert joined(fabric, slot) == wanted
    at = policy.decide(Demand.none(fabric.racks), Circuits(), 2.5 * policy.slot)
    assert at == cycle[2 % len(cycle)]


def test_static_lights_a_mesh_once_and_keeps_whatever_is_lit():
    policy, anything = parse_policy("static", LONELY), asks(LONELY, (0, 1, 1e12))
    one = lit(LONELY, [(0, 3)])
    assert policy.decide(anything, one, 0.0) is one
    named = dict(enumerate(mesh(LONELY.racks, 2)))
    assert policy.decide(anything, Circuits(), 0.0) == light(LONELY, named)
    cables = fat_tree(pods=2, tors=1, gpus=2)
    none = parse_policy("static", cables).decide(asks(cables, (0, 1, 1e9)), Circuits(), 0.0)
    assert none == Circuits()


@pytest.mark.parametrize("spec", ["mixnet", "rfabric,pods=2,tors=2,gpus=2,planes=2"])
def test_of_a_template_each_plane_lights_the_pairs_it_can_join_and_no_other(spec):
    fabric = parse_fabric(spec)
    everybody = asks(fabric, *((a, b, 1e9) for a, b in permutations(range(len(fabric.racks)), 2)))
    wanted = {}
    for plane, pairs in zip(planes(fabric), mesh(fabric.racks, len(planes(fabric))), strict=True):
        region = regions(fabric)[plane]
        for pair in pairs:
            if region[pair[0]] == region[pair[1]]:
                wanted[frozenset(pair)] = wanted.get(frozenset(pair), 0) + 1
    assert wanted
    assert joined(fabric, parse_policy("mesh", fabric).decide(everybody, Circuits(), 0.0)) == wanted


@pytest.mark.parametrize(
    ("uplinks", "partners", "turns_on"),
    [(1, 1, False), (4, 1, False), (1, 2, True), (2, 3, True), (3, 3, False), (4, 3, True)],
)
def test_rounds_are_for_whoever_cannot_meet_all_partners_alike_at_once(uplinks, partners, turns_on):
    """A hub of three partners and four uplinks favours one, unless that is another in turn."""
    fabric = rfabric(pods=1, tors=partners + 1, gpus=1, planes=uplinks, electrical=0)
    hub = asks(fabric, *((0, i + 1, 1e9) for i in range(partners)))
    assert bool(parse_policy("demand", fabric).rounds(hub, Circuits())) == turns_on


def test_a_decomposition_of_too_many_rounds_is_none(monkeypatch):
    """One uplink, seven partners: seven rounds at least."""
    fabric = rfabric(pods=1, tors=8, gpus=1, planes=1, electrical=0)
    everybody = asks(fabric, *((a, b, 1e9) for a, b in permutations(range(8), 2)))
    policy = parse_policy("demand", fabric)
    for most, some in ((7, True), (6, False)):
        monkeypatch.setattr(policies, "MOST_SLOTS", most)
        assert bool(policy.rounds(everybody, Circuits())) == some


def test_solvers_are_asked_up_to_the_limits_that_stand_beside_them(monkeypatch):
    wanted = asks(LONELY, (0, 1, 1e9), (0, 2, 1e9), (0, 3, 1e9))
    policy = parse_policy("demand", LONELY)
    assert len(policy.options(wanted, Circuits())) == 2  # three partners, two uplinks: few
    many = len(policy.rounds(wanted, Circuits()))
    for limit, options, fewer in ((4, 2, False), (3, 1, True)):
        monkeypatch.setattr(policies, "MOST_RACKS_COMPARED", limit)
        assert len(policy.options(wanted, Circuits())) == options
        assert (len(policy.rounds(wanted, Circuits())) < many) == fewer
    monkeypatch.undo()
    monkeypatch.setattr(policies, "MOST_PARTNERS", 1)
    assert len(policy.options(wanted, Circuits())) == 1


@pytest.mark.parametrize(("partners", "options"), [(3, 2), (4, 2), (5, 1)])
def test_whole_circuits_are_tried_where_racks_have_twice_as_many_partners_as_uplinks(
    partners, options
):
    fabric = rfabric(pods=1, tors=partners + 1, gpus=1, planes=2)
    hub = asks(fabric, *((0, i + 1, 1e9) for i in range(partners)))
    assert len(parse_policy("demand", fabric).options(hub, Circuits())) == options
    assert len(parse_policy("bvn", fabric).options(hub, Circuits())) == 1


def least_moved(matchings, start):
    """The pairs of each plane, by name."""
    mates = policies._numbered(LONELY, matchings)
    dealt = policies._least_moved(LONELY, mates, policies._partners(LONELY, start))
    return [
        [(LONELY.racks[a], LONELY.racks[b]) for a, b in enumerate(row) if a < b]
        for row in dealt.tolist()
    ]


def test_matchings_swap_planes_before_a_circuit_moves():
    start = lit(LONELY, [(0, 1)], [(2, 3)])
    swapped = least_moved([[("t3", "t4")], [("t1", "t2")]], start)
    assert swapped == [[("t1", "t2")], [("t3", "t4")]]


def test_of_planes_that_fit_as_well_the_first_is_taken():
    pair = [("t1", "t2")]
    assert least_moved([pair, []], Circuits()) == [pair, []]
    assert least_moved([[], pair], Circuits()) == [[], pair]
    assert least_moved([pair, pair], lit(LONELY, [(2, 3)])) == [
        [("t1", "t2"), ("t3", "t4")],
        [("t1", "t2")],
    ]


def test_racks_that_are_not_asked_for_keep_the_circuits_they_have():
    start = lit(LONELY, [(0, 1)], [(2, 3)])
    kept = least_moved([[("t3", "t4")], []], start)
    assert sorted(map(sorted, kept)) == [[("t1", "t2"), ("t3", "t4")], [("t3", "t4")]]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=6
    )
)
def test_demand_is_as_good_as_the_best_circuits_there_are(entries):
    """Brute force over all pairs of matchings of four racks: within the share that a greedy plan
    may lose.
    """
    wanted = asks(LONELY, *((a, b, 1e11 * n) for a, b, n in entries if a != b))
    assume(not wanted.idle)
    whole = [[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)]]
    every = [lit(LONELY, a, b) for a in whole for b in whole]
    best = min(drain_seconds(LONELY, some, wanted) for some in every)
    chosen = parse_policy("demand", LONELY).decide(wanted, Circuits(), 0.0)
    assert bound(LONELY, wanted).seconds * (1 - 1e-6) <= drain_seconds(LONELY, chosen, wanted)
    assert drain_seconds(LONELY, chosen, wanted) <= 2 * best * (1 + 1e-9)


# --- the checker ----------------------------------------------------------------------------------


def test_only_pairs_on_dark_cables_are_held():
    old, new = lit(FOUR, [(0, 1)], [(2, 3)]), lit(FOUR, [(0, 2)], [(2, 3)])
    hosts = FOUR.hosts
    pairs = [(hosts[0], hosts[1]), (hosts[2], hosts[3]), (hosts[1], hosts[3])]
    for routing in (Routing("ecmp"), Routing("split")):
        held, wrong = faults_during(FOUR, old, new, pairs, routing)
        assert held == [pairs[0]] and wrong == []


def test_pairs_of_several_ways_are_held_where_one_of_them_is_dark():
    old, new = lit(FOUR, [(0, 1)], [(0, 1)]), lit(FOUR, [(0, 1)], [(2, 3)])
    pair = (FOUR.hosts[0], FOUR.hosts[1])
    held, wrong = faults_during(FOUR, old, new, [pair], Routing("split"))
    assert held == [pair] and wrong == []
    still, wrong = faults_during(FOUR, old, old, [pair], Routing("split"))
    assert still == [] and wrong == []


def test_light_paths_are_as_many_as_circuits_and_cables_say():
    c = cabling_of(FOUR)
    dark = len(light_paths(FOUR))
    assert len(light_paths(FOUR, lit(FOUR, [(0, 1), (2, 3)]))) == dark + 4
    assert routes_of(FOUR, Circuits()).ways.switches == int((c.row >= 0).sum())
    assert fat_tree().ocses == ()
