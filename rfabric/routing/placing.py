"""Pairs of hosts placed on ways, all of them, in time near linear in pairs: what the scheme
`placed` does.

    1  through tiers of packet switches  planes and cores are dealt by colouring (`tiers`): no
                                         uplink has more than its share
    2  elsewhere                         heaviest first, each on the way whose busiest cable is
                                         least loaded then
    3  everywhere                        pairs move off cables that need longer than network cards
                                         and racks do anyway

What a way costs a pair: for each kind that the pair sends in, the seconds that the busiest arc of
the way would then need, added up. Pairs that send in the same kinds share a *signature*, and with
it the least loaded arc of each bundle. Steps 2 and 3 go by rounds: in a round each rack places one
pair (step 3: each overfull arc gives some up), all at once, and of pairs that want the same arc the
first gets it; others wait a round, a few times at most.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from ..units import transfer_seconds
from .choices import MOST_WAYS, Choices, Offers
from .inner import Laid, Wide, loops
from .rows import begins, distinct, in_order, mixed, numbered, offsets_of, ranks, spread, widened
from .tiers import tiered

# times that the pairs on overfull cables are looked at, while the busiest cables gain by it
MOST_ROUNDS = 12
# Ways looked at for all pairs together, down to so many a pair: the more pairs, the better few ways
# each even out. The busiest cable of 20,000 pairs on 1,024 GPUs was the same with 26 ways each as
# with 128, on rfabric, topoopt and opus.
MOST_ROWS, LEAST_WAYS = 1 << 19, 16
# beyond 100,000 pairs fewer: on 65,536 GPUs 200,000 pairs took as long with 6 ways each as with 16
ALL_ROWS = 3 << 19
# rounds in one such time: where more pairs than this share a cable, several move at once
MOST_PARTS = 64
# pairs whose bytes differ by less than the fourth root of two are placed as equally heavy
SIZES = 4
PATIENCE = 3  # rounds that a pair waits for others that want the same arc
# where colouring leaves no kind later than this share, placing one after another is not tried too
UNEVEN = 0.05
GAIN = 1e-3  # a pair moves where that shortens its own busiest cable by more than this share


class Kinds:
    """What pairs send (bytes, kinds x pairs), kind by kind: places first[i] to first[i + 1] of
    `kind` and `bytes` are of pair i, `total` is all it sends.

    `signature` of each pair: a number for the kinds it sends in, kinds[signature]; `lightness`:
    how many different totals are larger than its own.
    """

    def __init__(self, sent: np.ndarray):
        self.count, self.total = len(sent), sent.sum(0)
        self.lightness = np.unique(-self.total, return_inverse=True)[1]
        pair, self.kind = np.nonzero(sent.T)
        self.bytes = sent[self.kind, pair]
        self.first = np.searchsorted(pair, np.arange(sent.shape[1] + 1))
        name = np.zeros(sent.shape[1], np.uint64)
        np.add.at(name, pair, mixed(self.kind.astype(np.uint64)))
        _, example, self.signature = np.unique(name, return_index=True, return_inverse=True)
        self.kinds = [self.kind[self.first[i] : self.first[i + 1]] for i in example]

    def busiest(self, ends: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Seconds of each kind at the busiest of ends (numbers), pair i at ends[i], of such rates
        (bit/s).
        """
        code = self.kind * len(rate) + np.repeat(ends, np.diff(self.first))
        load = np.bincount(code, self.bytes, minlength=self.count * len(rate))
        return transfer_seconds(load.reshape(-1, len(rate)), rate).max(1, initial=0.0)


class Placer:
    """Places pairs from rack[i] to to[i] (numbers), which send `sent`.

    Its state: `load` bytes[kind, arc]; `arcs` of each pair, `nowhere` beyond the last; `best`
    arc[signature, bundle].
    """

    def __init__(self, choices: Choices, sent: Kinds, rack: np.ndarray, to: np.ndarray):
        self.choices, self.bundles, self.rack, self.to = choices, choices.bundles, rack, to
        some, self.count, self.total = self.bundles, sent.count, sent.total
        self.nowhere, self.wide = len(some.path), bool((some.width > 1).any())
        self.seconds_a_byte = np.append(transfer_seconds(1.0, some.arc_rate), 0.0)
        self.first, self.kind, self.bytes = sent.first, sent.kind, sent.bytes
        self.signature, self.kinds, self.lightness = sent.signature, sent.kinds, sent.lightness
        pairs = max(len(rack), 1)
        self.most = min(max(MOST_ROWS // pairs, LEAST_WAYS), max(ALL_ROWS // pairs, 1), MOST_WAYS)
        self.racks, self.pair_key = numbered(rack << 32 | to)
        self._every: tuple[np.ndarray, Offers] | None = None

    def run(self, enough: np.ndarray) -> np.ndarray:
        """int64[pairs, longest]: the light paths of every pair, -1 beyond the last; `enough` s of
        each kind are no hurry.

        Where colouring leaves a kind late, as pairs of many sizes and kinds may be, placing one
        after another is tried too.
        """
        enough, rows, least = np.maximum(enough, self._rack_seconds), self._tiered(), np.inf
        for start in (rows, rows[:, :0]) if self._led(rows).all() else (rows,):
            self._place(start, enough)
            if self._seconds.sum() < least:
                best, least = self.arcs, self._seconds.sum()
            if (self._seconds <= enough * (1 + UNEVEN)).all():
                break
        return np.append(self.bundles.path, -1)[best]

    def _place(self, rows: np.ndarray, enough: np.ndarray) -> None:
        """Place every pair: on its row of bundles where it has one, one after another where not;
        then off the busiest arcs.
        """
        self.load = np.zeros((self.count, self.nowhere + 1))
        self._laid = self._in_core()
        self.best = np.tile(np.append(self.bundles.first[:-1], self.nowhere), (len(self.kinds), 1))
        self.arcs = np.full((len(self.rack), 0), self.nowhere)
        tiered = self._led(rows)
        self._side_by_side(np.flatnonzero(tiered), rows[tiered])
        self._greedy(np.flatnonzero(~tiered))
        before = np.inf
        for _ in range(MOST_ROUNDS):
            if not self._move(enough) + self._beside(enough) or self._seconds.sum() > before * (
                1 - GAIN
            ):
                break
            before = self._seconds.sum()

    def _led(self, rows: np.ndarray) -> np.ndarray:
        """Which rows of bundles hold any: they begin on the left."""
        none = np.zeros(len(rows), bool)
        return rows[:, 0] < self.bundles.nowhere if rows.shape[1] else none

    def _in_core(self) -> Laid | None:
        """The state as the compiled core takes it; None where that was never built."""
        if not loops():
            return None
        return Laid(self.first, self.kind, self.bytes, self.seconds_a_byte, self.load)

    @property
    def _seconds(self) -> np.ndarray:
        """Seconds of each kind at its busiest arc."""
        return (self.load * self.seconds_a_byte).max(1)

    # --- tiers of packet switches -----------------------------------------------------------------

    def _tiered(self) -> np.ndarray:
        """Rows of bundles of the pairs that colouring can place: those whose cheapest ways all lead
        up through tiers.
        """
        ways, some = self.choices.ways, self.bundles
        row, end = (ways.cabling.rack_row[ends] for ends in (self.rack, self.to))
        up = np.flatnonzero(~self._level[self.pair_key])
        if not len(up):
            return np.full((len(row), 0), some.nowhere)
        rows = tiered(some, row[up], end[up], (self.signature[up], self.lightness[up]))
        steps = np.append(some.step, 0.0)[rows].sum(1)
        rows[np.abs(steps - ways.cost(row[up], self.to[up])) > 1e-6 * steps] = some.nowhere
        every = np.full((len(row), rows.shape[1]), some.nowhere)
        every[up] = rows
        return every

    @cached_property
    def _level(self) -> np.ndarray:
        """bool, by pair of racks: whether a cheapest way begins with a light path to another
        rack.
        """
        ways, rack, to = self.choices.ways, self.racks >> 32, self.racks & 0xFFFFFFFF
        is_rack = np.zeros(ways.switches, bool)
        is_rack[ways.cabling.rack_row] = True
        owner, arcs = ways.fitting_many(ways.cabling.rack_row[rack], to)
        return np.bincount(owner[is_rack[ways.leads[arcs]]], minlength=len(rack)) > 0

    def _side_by_side(self, pairs: np.ndarray, rows: np.ndarray) -> None:
        """Lay pairs on bundles whose arcs they take in turn, pairs alike after each other."""
        arcs, some = np.full(rows.shape, self.nowhere), self.bundles
        alike = in_order(self.signature[pairs], self.lightness[pairs])
        for hop, bundle in enumerate(rows[alike].T):
            order = in_order(bundle)
            b = bundle[order][: np.count_nonzero(bundle < some.nowhere)]
            arcs[alike[order[: len(b)]], hop] = some.first[b] + ranks(b) % some.width[b]
        self._put(pairs, arcs)

    # --- one after another ------------------------------------------------------------------------

    def _greedy(self, pairs: np.ndarray) -> None:
        """Place pairs on their cheapest ways, each rack's heaviest first."""
        if not len(pairs):
            return
        offers, key = self._offered(pairs, self.choices.cheapest)
        size = np.round(SIZES * np.log2(np.maximum(self.total[pairs], 1.0))).astype(np.int64)
        size, light = size.max() - size, self.lightness[pairs]
        order = in_order(size, self.rack[pairs], light)
        turn = np.empty(len(pairs), np.int64)
        turn[order] = ranks(size[order], self.rack[pairs[order]])
        tried, waiting = np.zeros(len(pairs), np.int64), np.zeros(0, np.int64)
        parts = _parts(in_order(size, turn, light), turn, size)
        if self._laid:
            state = self.signature, key, offers, self.best, PATIENCE, self._wide
            self._keep(pairs, self._laid.greedy(pairs, parts, *state))
            return
        for part in parts:
            waiting = self._settle(pairs, np.concatenate((waiting, part)), offers, key, tried)
        while len(waiting):
            waiting = self._settle(pairs, waiting, offers, key, tried)

    def _settle(self, pairs, some, offers: Offers, key, tried) -> np.ndarray:
        """Place pairs[some] where that is cheapest now; those that have to wait are returned."""
        _, arcs = self._cheapest(pairs[some], offers, key[some])
        free = self._claims(arcs) | (offers.counts[key[some]] == 1) | (tried[some] >= PATIENCE)
        self._put(pairs[some[free]], arcs[free])
        tried[some[~free]] += 1
        return some[~free]

    # --- off the busiest cables -------------------------------------------------------------------

    def _move(self, enough: np.ndarray) -> int:
        """Move pairs off arcs that need longer than `enough`, off the worse half of those; how many
        moved.
        """
        limit = np.maximum(enough * (1 + GAIN), (enough + self._seconds) / 2)
        late, arc = self._lateness(np.arange(len(self.rack)), limit)
        pairs = np.flatnonzero(late > 0)
        if not len(pairs):
            return 0
        offers, key = self._alternatives(pairs)
        some = np.flatnonzero(offers.counts[key] > 1)
        order = some[np.lexsort((-late[pairs[some]], arc[pairs[some]]))]
        turn = np.zeros(len(pairs), np.int64)
        turn[order] = ranks(arc[pairs[order]])
        turn = turn * min(MOST_PARTS, turn.max() + 1) // (turn.max() + 1)
        order = np.lexsort((-late[pairs[some]], turn[some]))
        parts = _parts(order, turn[some]) if len(some) else []
        return sum(self._shift(pairs[some[part]], offers, key[some[part]], limit) for part in parts)

    def _beside(self, enough: np.ndarray) -> int:
        """Move pairs to light paths beside those where they are late, of other rates, of which the
        least loaded may be the slowest; how many moved.
        """
        some, moved = self.bundles, 0
        if (some.equal == some.width).all():
            return 0
        late, arc = self._lateness(np.arange(len(self.rack)), enough * (1 + GAIN))
        for pair in np.argsort(-late)[: np.count_nonzero(late > 0)]:
            bundle = np.searchsorted(some.first, arc[pair], side="right") - 1
            beside = np.arange(*some.first[bundle : bundle + 2])
            own = np.tile(self.arcs[pair], (len(beside), 1))
            ways, mine = np.where(own == arc[pair], beside[:, None], own), np.repeat(pair, len(own))
            cost = (self._laid.cost if self._laid else self._cost)(mine, ways, own)
            best = int(cost.argmin())
            if cost[best] < cost[arc[pair] - beside[0]] * (1 - GAIN):
                self._add(mine[:1], own[:1], -1)
                self._put(mine[:1], ways[best : best + 1])
                moved += 1
        return moved

    def _shift(self, pairs: np.ndarray, offers: Offers, key: np.ndarray, limit: np.ndarray) -> int:
        """Move those of the pairs that are late, and better off elsewhere; how many."""
        late = np.flatnonzero(self._lateness(pairs, limit)[0] > 0)
        pairs, key = pairs[late], key[late]
        if not len(pairs):
            return 0
        own = self.arcs[pairs]
        was = (self._laid.cost if self._laid else self._cost)(pairs, own, own)
        cost, arcs = self._cheapest(pairs, offers, key, self.arcs)
        better = np.flatnonzero(cost < was * (1 - GAIN))
        better = better[self._claims(arcs[better])]
        moving = pairs[better]
        self._add(moving, self.arcs[moving], -1)
        self._put(moving, arcs[better])
        return len(moving)

    def _lateness(self, pairs: np.ndarray, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By what share the busiest arc of each pair needs longer than `limit`, in its worst kind,
        and which arc that is.
        """
        if self._laid:
            return self._laid.lateness(pairs, self.arcs, limit)
        entry, owner = self._entries(pairs)
        arcs, kind = self.arcs[pairs[owner]], self.kind[entry]
        need = self.load[kind[:, None], arcs] * self.seconds_a_byte[arcs] / limit[kind][:, None]
        late, arc = np.full(len(pairs), -1.0), np.full(len(pairs), self.nowhere)
        if need.size:
            worst, hop = need.max(1) - 1, need.argmax(1)
            np.maximum.at(late, owner, worst)
            top = worst == late[owner]
            arc[owner[top]] = arcs[top, hop[top]]
        return late, arc

    @cached_property
    def _rack_seconds(self) -> np.ndarray:
        """Seconds of each kind that the busiest rack needs if it spreads over all its arcs what
        leaves it, or what comes.
        """
        row, some = self.choices.ways.cabling.rack_row, self.bundles
        entry, owner = self._entries(np.arange(len(self.rack)))
        seconds = np.zeros(self.count)
        for ends, sides in ((self.rack, some.leaves), (self.to, some.leads)):
            rate = np.bincount(
                np.repeat(sides, some.width), some.arc_rate, minlength=some.switches
            )[row]
            code = self.kind[entry] * len(row) + ends[owner]
            load = np.bincount(code, self.bytes[entry], minlength=seconds.size * len(row)).reshape(
                -1, len(row)
            )
            lit = rate > 0  # racks without an arc send nothing
            seconds = np.maximum(
                seconds, transfer_seconds(load[:, lit], rate[lit]).max(1, initial=0.0)
            )
        return seconds

    # --- what they share --------------------------------------------------------------------------

    def _offered(
        self, pairs: np.ndarray, offered: Callable[..., Offers]
    ) -> tuple[Offers, np.ndarray]:
        """The ways of the racks of these pairs, and which of them are each pair's."""
        keys, key = numbered(self.pair_key[pairs])
        return offered(self.racks[keys] >> 32, self.racks[keys] & 0xFFFFFFFF, self.most), key

    def _alternatives(self, pairs: np.ndarray) -> tuple[Offers, np.ndarray]:
        """Every way of the racks of these pairs; what was asked for before is kept, as who is late
        now was late before.
        """
        wanted = distinct(self.pair_key[pairs])
        new = (
            wanted
            if self._every is None
            else np.setdiff1d(wanted, self._every[0], assume_unique=True)
        )
        if len(new):
            racks = self.racks[new]
            offered = new, self.choices.every(racks >> 32, racks & 0xFFFFFFFF, self.most)
            self._every = offered if self._every is None else self._merged(self._every, offered)
        return self._every[1], np.searchsorted(self._every[0], self.pair_key[pairs])

    def _merged(self, *some: tuple[np.ndarray, Offers]) -> tuple[np.ndarray, Offers]:
        """The keys of both, ascending, and their ways."""
        longest, nowhere = max(offers.rows.shape[1] for _, offers in some), self.bundles.nowhere
        rows = np.concatenate([widened(offers.rows, longest, nowhere) for _, offers in some])
        keys = np.concatenate([key for key, _ in some])
        counts = np.concatenate([offers.counts for _, offers in some])
        order = np.argsort(keys)
        row = spread(offsets_of(counts)[:-1][order], counts[order])
        return keys[order], Offers(offsets_of(counts[order]), rows[row])

    def _entries(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What these pairs send, kind by kind (places in `kind` and `bytes`), and which of them
        each is of.
        """
        counts = self.first[pairs + 1] - self.first[pairs]
        return spread(self.first[pairs], counts), np.repeat(np.arange(len(pairs)), counts)

    def _cheapest(
        self, pairs, offers: Offers, key, now: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(cost, arcs) of the cheapest way of each pair; where its bytes lie already (`now`), they
        count once.
        """
        if self._laid:
            return self._laid.cheapest(pairs, self.signature, key, offers, self.best, now)
        counts = offers.counts[key]
        row, owner = spread(offers.first[key], counts), np.repeat(np.arange(len(pairs)), counts)
        arcs = self.best[self.signature[pairs[owner]][:, None], offers.rows[row]]
        cost = self._cost(pairs[owner], arcs, None if now is None else now[pairs[owner]])
        first = offsets_of(counts)[:-1]
        least = np.flatnonzero(cost == np.minimum.reduceat(cost, first)[owner])
        least = least[begins(owner[least])]
        return cost[least], arcs[least]

    def _cost(
        self, pairs: np.ndarray, arcs: np.ndarray, own: np.ndarray | None = None
    ) -> np.ndarray:
        """Seconds that arcs[i] cost pairs[i], its bytes on them; those arcs of `own`[i] have them
        already.
        """
        entry, owner = self._entries(pairs)
        more = self.bytes[entry][:, None]
        if own is not None:
            lies = np.zeros(arcs.shape, bool)
            for column in own.T:
                lies |= arcs == column[:, None]
            more = np.where(lies[owner], 0.0, more)
        at = arcs[owner]
        need = self.load.take(at + self.kind[entry][:, None] * self.load.shape[1])
        need += more
        need *= self.seconds_a_byte.take(at)
        each = need[:, :1].sum(1)
        for column in need.T[1:]:
            np.maximum(each, column, out=each)
        each += 1e-6 * need.sum(1)  # of equals the shorter, less used one
        return np.bincount(owner, each, minlength=len(pairs))

    def _claims(self, arcs: np.ndarray) -> np.ndarray:
        """Which rows of arcs hold none that an earlier row holds: a mask."""
        if self._laid:
            return self._laid.claims(arcs)
        order, taken = np.arange(len(arcs))[:, None], np.full(self.nowhere + 1, len(arcs))
        np.minimum.at(taken, arcs, np.broadcast_to(order, arcs.shape))
        return ((taken[arcs] == order) | (arcs == self.nowhere)).all(1)

    def _put(self, pairs: np.ndarray, arcs: np.ndarray) -> None:
        self._keep(pairs, arcs)
        self._add(pairs, arcs, 1)

    def _keep(self, pairs: np.ndarray, arcs: np.ndarray) -> None:
        if arcs.shape[1] > self.arcs.shape[1]:
            self.arcs = widened(self.arcs, arcs.shape[1], self.nowhere)
        self.arcs[pairs, : arcs.shape[1]], self.arcs[pairs, arcs.shape[1] :] = arcs, self.nowhere

    def _add(self, pairs: np.ndarray, arcs: np.ndarray, sign: int) -> None:
        """Add (or take away) the bytes of pairs, and see which arcs of these bundles are the least
        loaded now.
        """
        if self._laid:
            self._laid.lay(pairs, arcs, sign)
            if self._wide:
                self._laid.least(pairs, arcs, self._wide, self.best)
            return
        entry, owner = self._entries(pairs)
        np.add.at(
            self.load, (self.kind[entry][:, None], arcs[owner]), sign * self.bytes[entry][:, None]
        )
        if self.wide:
            bundles = np.unique(
                np.searchsorted(self.bundles.first, arcs[arcs < self.nowhere], side="right") - 1
            )
            self._least_loaded(bundles, np.flatnonzero(np.bincount(self.kind[entry])))

    @cached_property
    def _wide(self) -> Wide | None:
        """The bundles as the compiled core takes them; None where none has several arcs."""
        if not self.wide:
            return None
        some = self.bundles
        bundle_of = np.append(np.repeat(np.arange(some.nowhere), some.width), some.nowhere)
        return Wide(some.first, bundle_of, self._kinds_of)

    @cached_property
    def _kinds_of(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR: the kinds of each signature."""
        counts = np.array([len(own) for own in self.kinds])
        return offsets_of(counts), np.concatenate([np.zeros(0, np.int64), *self.kinds])

    def _least_loaded(self, bundles: np.ndarray, kinds: np.ndarray) -> None:
        """Find the least loaded arcs of bundles anew, for the signatures that have one of these
        kinds.
        """
        width = self.bundles.width[bundles]
        arcs, owner = (
            spread(self.bundles.first[bundles], width),
            np.repeat(np.arange(len(bundles)), width),
        )
        first = offsets_of(width)[:-1]
        for signature, own in enumerate(self.kinds):
            if len(arcs) and np.isin(own, kinds).any():
                held = self.load[own][:, arcs].sum(0) * self.seconds_a_byte[arcs]
                least = np.flatnonzero(held == np.minimum.reduceat(held, first)[owner])
                self.best[signature, bundles] = arcs[least[begins(owner[least])]]


def _parts(every: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """Entries in this order, cut where one of the columns, which it sorts, changes."""
    return np.split(every, np.flatnonzero(begins(*(column[every] for column in columns)))[1:])
