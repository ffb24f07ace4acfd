"""How long a pipeline takes whose stages hold unequally many layers: operation by operation.

    stage 1   F F F F . . . B F B F B B B     forward passes ahead, then one forward and
    stage 2   . F F . . B F B F B F B . .     one backward in turn (1F1B), then the
    stage 3   . . F B F B F B F B . . . .     backward passes that are left

An operation begins when its stage is free and what it needs is there: forward, the output of the
chunk before; backward, the gradient of the chunk behind, and in the last chunk its forward pass.
The orders are those of PipeDream-flush and, interleaved, of Megatron-LM
(megatron/core/pipeline_parallel/schedules.py). Where all stages are alike there is a closed form:
`training.bubble_share`.
"""

from .by_rank import ByRank, most
from .layout import Layout

# Of a micro-batch's forward and backward pass: two matmuls backward for one forward.
FORWARD = 1 / 3

Operation = tuple[bool, int, int]  # forward, micro-batch, chunk of the stage


def operations(layout: Layout, stage: int, micro_batches: int) -> list[Operation]:
    """What a stage does, one after the other. Interleaved, pp micro-batches pass a chunk at a time,
    of which there are whole rounds.

    >>> operations(Layout(pp=2), 0, 2)
    [(True, 0, 0), (True, 1, 0), (False, 0, 0), (False, 1, 0)]
    """
    pp, vp = layout.pp, layout.vp
    size = pp if vp > 1 else micro_batches
    runs = [
        (first + k, chunk)
        for first in range(0, micro_batches, size)
        for chunk in range(vp)
        for k in range(size)
    ]
    forward = [(True, k, chunk) for k, chunk in runs]
    backward = [(False, k, vp - 1 - chunk) for k, chunk in runs]
    ahead = 2 * (pp - 1 - stage) + (vp - 1) * pp if vp > 1 else pp - 1 - stage
    ahead = min(ahead, len(runs))
    both = zip(forward[ahead:], backward, strict=False)
    in_turn = [one for pair in both for one in pair]
    return forward[:ahead] + in_turn + backward[len(runs) - ahead :]


def played(layout: Layout, micro_batches: int, logits: ByRank, backward: bool = True) -> ByRank:
    """What so many micro-batches take, in passes of one through the mean stage; `logits`: the share
    of a pass that makes logits, in the last chunk; backward: gradients too. Of many ranks at once:
    what follows what does not depend on how long it takes.

    >>> round(played(Layout(pp=2, stages=(1, 3)), 5, 0.0), 9)  # 4 + 4 x 3 layers of 2
    8.0
    """
    took = [_seconds(layout, place, logits) for place in range(layout.pp * layout.vp)]
    ends: dict[Operation, ByRank] = {}  # by the place of the chunk in the model
    free: list[ByRank] = [0.0] * layout.pp
    left = [operations(layout, stage, micro_batches)[::-1] for stage in range(layout.pp)]
    if not backward:
        left = [[one for one in each if one[0]] for each in left]
    while any(left):
        for stage, waiting in enumerate(left):
            while waiting:
                forward, micro, chunk = waiting[-1]
                place = chunk * layout.pp + stage
                needed = _needed(layout, forward, micro, place)
                if needed and needed not in ends:
                    break
                waiting.pop()
                begins = most(free[stage], ends.pop(needed)) if needed else free[stage]
                share = 1.0 if not backward else FORWARD if forward else 1 - FORWARD
                free[stage] = begins + share * took[place]
                ends[forward, micro, place] = free[stage]
    return most(*free)


def _needed(layout: Layout, forward: bool, micro: int, place: int) -> Operation | None:
    """What must be there before a pass of the chunk at a place in the model."""
    if forward:
        return (True, micro, place - 1) if place else None
    last = layout.pp * layout.vp - 1
    return (True, micro, last) if place == last else (False, micro, place + 1)


def _seconds(layout: Layout, place: int, logits: ByRank) -> ByRank:
    """Of both passes of a chunk."""
    layers = (1 - logits) * layout.times(place % layout.pp) / layout.vp
    return layers + layout.pp * logits * (place == layout.pp * layout.vp - 1)
