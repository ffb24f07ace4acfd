"""Epochs and plans as values: states, times, what is refused, and that the books stay in order."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rfabric.control.epochs import Epochs, NotFoundError, StateError, violations
from rfabric.errors import RFabricError
from rfabric.optics import Circuit, Circuits, Rewire

A, B, C = (Circuit.parse(f"a1:{text}") for text in ("1-2", "3-4", "1-3"))


def rewire(down, up):
    return Rewire(Circuits(frozenset(down)), Circuits(frozenset(up)))


def began(epochs):
    return epochs.propose(rewire([A], [C]), delay=0.01).ready(1).commit(1, now=5.0)


def test_a_plan_runs_through_its_states_and_becomes_the_epoch():
    start = Epochs(Circuits(frozenset([A])))
    one = (
        began(start).programmed(1, 5.002).light(1, 5.012).usable(1, 5.013).verified(1, lost_bytes=7)
    )
    plan = one.plan(1)
    assert (one.active, plan.state, plan.lost_bytes) == (1, "ACTIVE", 7)
    assert set(one.circuits) == {C} and set(start.circuits) == {A}
    assert (plan.requested, plan.programmed, plan.dark_until, plan.usable) == pytest.approx(
        (5, 5.002, 5.012, 5.013)
    )
    two = (
        one.propose(rewire([C], [A]), 0.01)
        .ready(2)
        .commit(2, 6)
        .programmed(2, 6)
        .light(2, 6.01)
        .usable(2, 6.01)
    )
    assert two.verified(2).plan(1).state == "PAST"


def test_a_control_time_that_is_told_stands_for_the_one_of_the_switches_unless_they_take_longer():
    epochs = (
        Epochs(Circuits(frozenset([A])))
        .propose(rewire([A], [C]), 0.01, 10, control=0.005)
        .ready(1)
        .commit(1, now=1.0)
    )
    done = epochs.programmed(1, 1.048, took=0.008)
    assert done.plan(1).programmed == pytest.approx(1.05) and done.plan(
        1
    ).dark_until == pytest.approx(1.15)
    done = done.light(1, 1.151).usable(1, 1.152)
    assert done.plan(1).usable == pytest.approx(1.152) and done.plan(1).took == 0.008
    assert epochs.programmed(1, 1.07).plan(1).programmed == 1.07


def test_time_dilation_stretches_dark_and_control_time():
    epochs = (
        Epochs(Circuits(frozenset([A]))).propose(rewire([A], [C]), delay=0.01, dilation=10).ready(1)
    )
    epochs = epochs.commit(1, now=1.0).programmed(1, 1.003)
    assert epochs.plan(1).programmed == pytest.approx(1.03) and epochs.plan(
        1
    ).dark_until == pytest.approx(1.13)
    epochs = epochs.light(1, 1.13).usable(1, 1.131)
    assert epochs.plan(1).usable == pytest.approx(1.14)


def test_it_is_dark_until_the_delay_is_over():
    dark = began(Epochs(Circuits(frozenset([A])))).programmed(1, 5.002)
    with pytest.raises(StateError, match="plan 1 is dark for another 0.002"):
        dark.light(1, 5.010)
    assert dark.light(1, 5.012).plan(1).state == "LIGHTING"


def test_a_failure_rolls_back_to_the_circuits_before():
    epochs = began(Epochs(Circuits(frozenset([A])))).failed(1, "a1 kept silent")
    assert epochs.under_way.state == "ROLLBACK" and set(epochs.circuits) == {A}
    done = epochs.rolled_back(1)
    assert (
        done.under_way is None
        and done.plan(1).state == "ABORTED"
        and done.plan(1).error == "a1 kept silent"
    )


def test_what_does_not_fit_the_state_is_refused_and_says_what_does():
    start = Epochs(Circuits(frozenset([A])))
    open_ = start.propose(rewire([A], [C]), 0.01)
    with pytest.raises(
        StateError, match="plan 1 is PLANNED and can become PREPARED or ABORTED, not PROGRAMMING"
    ):
        open_.commit(1, 0)
    two = open_.ready(1).propose(rewire([], [B]), 0.01).ready(2).commit(1, 0)
    with pytest.raises(StateError, match="plan 2 must wait: plan 1 is PROGRAMMING"):
        two.commit(2, 0)
    with pytest.raises(
        StateError, match="plan 1 is PROGRAMMING: a rewire that has begun ends by itself"
    ):
        two.abort(1)
    done = two.programmed(1, 0).light(1, 1).usable(1, 1).verified(1)
    assert done.plan(2).error == "plan 1 became active first"
    with pytest.raises(StateError, match="plan 2 is ABORTED and can become nothing else"):
        done.commit(2, 2)
    with pytest.raises(NotFoundError, match="no plan 9; the last is 2"):
        done.commit(9, 0)
    with pytest.raises(StateError, match="not made for the circuits of epoch 0"):
        start.propose(rewire([B], [C]), 0.01)
    with pytest.raises(
        RFabricError, match="port a1:1 is already in circuit a1:1-a1:2; tear it down"
    ):
        start.propose(rewire([], [C]), 0.01)


VERBS = (
    "propose",
    "ready",
    "commit",
    "programmed",
    "light",
    "usable",
    "verified",
    "failed",
    "rolled_back",
    "abort",
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VERBS), st.integers(1, 5)), max_size=60), st.randoms())
def test_whatever_happens_the_books_stay_in_order(script, rng):
    everything = [Circuit.parse(f"a1:{a}-{b}") for a, b in itertools.combinations(range(1, 7), 2)]
    epochs, now, good = Epochs(Circuits(frozenset([A]))), 0.0, {0: frozenset([A])}
    for verb, n in script:
        now += 0.02
        before = epochs
        try:
            if verb == "propose":
                rng.shuffle(everything)
                chosen = [
                    c
                    for i, c in enumerate(everything[:3])
                    if not set(c) & {p for d in everything[:i] for p in d}
                ]
                epochs = epochs.propose(
                    Rewire.between(epochs.circuits, Circuits(frozenset(chosen))), 0.01
                )
            elif verb in ("commit", "programmed", "light", "usable"):
                epochs = getattr(epochs, verb)(n, now)
            else:
                epochs = getattr(epochs, verb)(n, *(["broken"] if verb == "failed" else []))
        except (StateError, NotFoundError):
            assert epochs is before
        assert not violations(epochs)
        good.setdefault(epochs.active, epochs.circuits.items)
        # the circuits that count change with the epoch alone
        assert epochs.circuits.items == good[epochs.active]
        assert epochs.active >= before.active or before.plan(before.active).state == "ACTIVE"


def test_the_checker_finds_books_that_are_wrong():
    epochs = began(Epochs(Circuits(frozenset([A])))).programmed(1, 5.002)
    wrong = Epochs(epochs.circuits, active=3, plans={1: epochs.plan(1), 2: epochs.plan(1)})
    assert len(violations(wrong)) == 2
