"""Sequences dealt to data-parallel ranks, and the tokens that they count as in a micro-batch.

    lengths 5 2 4 1, micro-batches of two      tokens computed
    none                                       5 2 4 1   12
    micro-batch   the longest beside it        5 5 4 4   18
    mini-batch    the longest of the update    5 5 5 5   20
    maximum       the longest that may be      8 8 8 8   32

A budget of tokens counts them before they are padded.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from .sections import MicroBatch
from .workload import Workload


@dataclass(frozen=True, eq=False)
class Ranks:
    """Tokens and sums of squared lengths (float64[dp]) of each data-parallel rank, padding
    included, and how many `micro_batches` the fullest of them needs.
    """

    tokens: np.ndarray
    squares: np.ndarray
    micro_batches: int


def ranks_of(w: Workload, lengths: np.ndarray, each: MicroBatch) -> Ranks:
    """Sequences dealt to data-parallel ranks. So many of a rank's are a micro-batch, in the order
    in which they come, or as many as the tokens of one hold before they are padded; the
    micro-batches of an interleaved pipeline are whole rounds.
    """
    dealt = [lengths[np.sort(rank)] for rank in balance(lengths, w.dp, bool(each.sequences))]
    if each.sequences:
        micro = -(-len(lengths) // (w.dp * each.sequences))
    else:
        micro = int(-(-max(own.sum() for own in dealt) // (each.tokens * w.training.cp)))
    micro = w.layout.whole_rounds(micro)
    computed = [_padded(w, own, lengths, each.sequences, micro) for own in dealt]
    attended = computed if w.training.padded_attention else dealt
    return Ranks(
        np.array([own.sum() for own in computed]),
        np.array([(own**2).sum() for own in attended]),
        micro,
    )


def _padded(
    w: Workload, own: np.ndarray, every: np.ndarray, sequences: int, micro: int
) -> np.ndarray:
    """What a rank's `own` of the lengths count as, in micro-batches of so many sequences, or in so
    many micro-batches of about as many tokens.
    """
    kind = w.training.padding
    if kind == "micro-batch":
        return longest_beside(own, sequences, micro)
    longest = {"mini-batch": every.max(), "maximum": w.generation.longest}
    return own if kind == "none" else np.full_like(own, longest[kind])


def longest_beside(lengths: np.ndarray, sequences: int, micro: int = 1) -> np.ndarray:
    """The longest length of the micro-batch that each sequence is in: of so many sequences in a
    row, or where 0, of `micro` ones with about as many tokens each.

    >>> longest_beside(np.array([5.0, 2.0, 4.0, 1.0, 3.0]), sequences=2).tolist()
    [5.0, 5.0, 4.0, 4.0, 3.0]
    >>> longest_beside(np.array([5.0, 2.0, 4.0, 1.0]), sequences=0, micro=2).tolist()
    [5.0, 4.0, 4.0, 5.0]
    """
    if sequences:
        longest = np.maximum.reduceat(lengths, np.arange(0, len(lengths), sequences))
        return np.repeat(longest, sequences)[: len(lengths)]
    beside = np.empty_like(lengths)
    for part in balance(lengths, micro):
        beside[part] = lengths[part].max(initial=0.0)
    return beside


def balance(lengths: np.ndarray, ranks: int, evenly: bool = False) -> list[np.ndarray]:
    """Sequences dealt to ranks, longest first to the rank with fewest tokens, as verl's
    balance_batch does; `evenly`: none gets more of them than an even share, rounded up.

    >>> [rank.tolist() for rank in balance(np.array([10.0, 40.0, 20.0, 30.0]), ranks=2)]
    [[1, 0], [3, 2]]
    >>> [rank.tolist() for rank in balance(np.array([9.0, 1.0, 2.0, 3.0]), ranks=2, evenly=True)]
    [[0, 1], [3, 2]]
    """
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0.0, rank) for rank in range(ranks)]  # a heap; of equals the first
    values = lengths.tolist()
    most = -(-len(values) // ranks) if evenly else len(values)
    for i in np.argsort(-lengths, kind="stable").tolist():
        load, rank = least[0]
        dealt[rank].append(i)
        if len(dealt[rank]) < most:
            heapq.heapreplace(least, (load + values[i], rank))
        else:
            heapq.heappop(least)
    return [np.array(part, dtype=np.int64) for part in dealt]
