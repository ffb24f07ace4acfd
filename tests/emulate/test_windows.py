"""How many packets of each flow of a card may be under way."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.emulate.windows import LEAST, SENDS, Windows
from rfabric.trace.packets import PAYLOAD

WAY = 6  # packets that a lone flow may have


class Lane:
    """It remembers how many bytes its kernel was told to keep."""

    def __init__(self):
        self.window, self.told = 0, []
        self.sender = SimpleNamespace(setsockopt=lambda *option: self.told.append(option[-1]))


class Card:
    """A card and its flows; each round every flow sends by its rate, in packets."""

    def __init__(self, count, most=WAY):
        self.windows = Windows(most)
        self.lanes = [Lane() for _ in range(count)]
        for one in self.lanes:
            self.windows.begin(one)
        for one in self.lanes:
            self.windows.open(one)

    def send(self, rates, rounds=400):
        """Packet by packet: one of the fastest flow each round, of others when one is due."""
        due = [0.0] * len(rates)
        for _ in range(rounds if max(rates) else 0):
            for number, rate in enumerate(rates):
                due[number] += rate / max(rates)
                if due[number] >= 1:
                    due[number] -= 1
                    self.windows.moved(self.lanes[number], PAYLOAD)

    @property
    def sizes(self):
        return [one.window for one in self.lanes]


def test_a_lone_flow_has_as_many_as_its_way_holds():
    card = Card(1)
    assert card.sizes == [WAY] and card.lanes[0].told == [SENDS // 2]
    card.send([3.0])
    assert card.sizes == [WAY] and len(card.lanes[0].told) == 1  # and the kernel is told once


@pytest.mark.parametrize(("count", "window"), [(2, WAY), (3, 4), (4, 3), (6, 2), (63, 2)])
def test_flows_that_start_together_share_what_the_card_needs(count, window):
    card = Card(count)
    assert set(card.sizes) == {window}
    card.send([1.0] * count)
    assert set(card.sizes) == {window}


def test_of_flows_held_up_far_away_few_packets_wait_there_and_the_free_one_gets_what_it_needs():
    card = Card(15)
    card.send([10.0] + [0.25] * 14)
    assert card.sizes == [WAY] + [LEAST] * 14
    card.send([0.25] + [1.0] * 14)  # and when they are free and it is not
    assert card.sizes == [LEAST] * 15


def test_a_flow_that_is_left_alone_gets_all():
    card = Card(8)
    card.send([1.0] * 8)
    for one in card.lanes[1:]:
        card.windows.end(one)
    for _ in range(60):
        card.windows.moved(card.lanes[0], PAYLOAD)
    assert card.sizes[0] == WAY


def test_what_was_sent_before_a_flow_began_or_after_it_ended_is_nobodys_share():
    """Warm-up, and bytes of a flow that the other end has already counted."""
    card, stray = Card(2), Lane()
    card.windows.moved(stray, 100 * PAYLOAD)
    card.windows.end(stray)
    card.send([1.0, 1.0])
    assert card.sizes == [WAY, WAY] and not stray.told


@given(st.lists(st.floats(0.01, 50.0), min_size=1, max_size=70), st.integers(4, 14))
def test_every_flow_may_have_what_its_rate_fills_the_way_with(rates, most):
    """A flow of a share s of its card needs s x `most` packets to keep that share, whatever the
    others do; and no more than `most` lets a lone one have.
    """
    card = Card(len(rates), most)
    card.send(rates)
    share = [rate / (sum(rates) or 1) for rate in rates]
    for window, part in zip(card.sizes, share, strict=True):
        assert LEAST <= window <= most and window >= part * most


@pytest.mark.parametrize("window", range(LEAST, WAY))
@pytest.mark.parametrize("kept", [PAYLOAD + 500, PAYLOAD + 1280, PAYLOAD + 1900])
def test_the_kernel_takes_so_many_packets_and_says_so_when_one_has_gone(window, kept):
    """As Linux does it (include/net/sock.h): a packet more is taken while those queued take less
    than the buffer, and there is room when what is free is half of what is taken.
    """
    buffer = 2 * (Windows(WAY)._buffer(window) // 2)
    assert next(n for n in range(20) if n * kept >= buffer) == window
    assert buffer - kept >= kept / 2  # one is left, so the next is asked for
