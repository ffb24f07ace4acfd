"""How GPUs share a model, and how people write it down."""

import math
import re
from dataclasses import dataclass, fields
from functools import cached_property

from ..errors import RFabricError
from .by_rank import ByRank, most

# Of a forward pass: after attention and after the MLP (Megatron-LM, arXiv 1909.08053).
ALL_REDUCES_PER_LAYER = 2


@dataclass(frozen=True)
class Layout:
    """How GPUs share a model: tensor, pipeline (vp chunks a stage), context, expert, data;
    `sharded`: FSDP, ZeRO-3; `etp`: GPUs over which each expert is cut; `copies`: of what is
    sharded, each on a part of the data-parallel ranks (hybrid sharding, HSDP); `stages`: layers of
    each pipeline stage, empty where all hold equally many.
    """

    tp: int = 1
    pp: int = 1
    vp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sharded: bool = False
    etp: int = 1
    copies: int = 1
    stages: tuple[int, ...] = ()

    def __post_init__(self):
        for f in fields(self):
            if f.name not in ("sharded", "stages") and getattr(self, f.name) < 1:
                raise RFabricError(f"layout: {f.name} {getattr(self, f.name)} must be 1 or more")
        if self.stages and (len(self.stages) != self.pp or min(self.stages) < 1):
            raise RFabricError(
                f"layout: stages of {', '.join(map(str, self.stages))} layers are not pp {self.pp} "
                "numbers of 1 or more"
            )
        if self.tp * self.cp * self.dp % self.expert_gpus:
            name = f"ep {self.ep}" + (f" x etp {self.etp}" if self.etp > 1 else "")
            raise RFabricError(
                f"layout: {name} does not divide tp {self.tp} x cp {self.cp} x dp {self.dp}; use "
                "a divisor"
            )
        if self.copies > 1 and not self.sharded:
            raise RFabricError(f"layout: {self.copies} copies are of sharded parameters alone")
        if self.dp * self.cp % self.copies or self.gpus // self.pp % (
            self.copies * self.expert_gpus
        ):
            raise RFabricError(
                f"layout: {self.copies} copies do not divide cp {self.cp} x dp {self.dp} in parts "
                f"that hold all experts of ep {self.ep}; use a divisor"
            )

    @classmethod
    def over(cls, gpus: int, tp: int = 1, pp: int = 1, ep: int = 1) -> "Layout":
        """So many GPUs, in as many data-parallel ranks as tp and pp leave; RFabricError where they
        do not divide.
        """
        if gpus % (tp * pp):
            raise RFabricError(
                f"layout: {gpus} GPUs are not a multiple of tp {tp} x pp {pp}; use a multiple"
            )
        return cls(tp=tp, pp=pp, ep=ep, dp=gpus // (tp * pp))

    @property
    def gpus(self) -> int:
        """GPUs of the whole layout."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def expert_gpus(self) -> int:
        """GPUs of a stage that hold one copy of its experts: Megatron's ep x etp, etp innermost."""
        return self.ep * self.etp

    def times(self, stage: int) -> float:
        """How many times the mean of all stages' layers this one holds.

        >>> Layout(pp=2, stages=(3, 1)).times(0)
        1.5
        """
        return self.pp * self.stages[stage] / sum(self.stages) if self.stages else 1.0

    @cached_property
    def widest(self) -> float:
        """`times` of the stage that holds the most layers."""
        return self.pp * max(self.stages) / sum(self.stages) if self.stages else 1.0

    def slowest(self, logits: ByRank) -> ByRank:
        """How many times as long as the mean stage the slowest takes, where so large a share of a
        pass makes logits, in the last alone.

        >>> round(Layout(pp=4).slowest(0.05), 2), round(Layout(pp=2, stages=(5, 3)).slowest(0.1), 3)
        (1.15, 1.125)
        """
        if self.pp == 1:
            return 1.0
        *others, last = map(self.times, range(self.pp))
        return most((1 - logits) * max(others), (1 - logits) * last + self.pp * logits)

    def stages_by_server(self, size: int) -> set[tuple[int, ...]]:
        """The stages of the GPUs of each server of so many, stages standing one after the other;
        servers alike once.

        >>> sorted(Layout(pp=2, dp=3).stages_by_server(2))
        [(0, 0), (0, 1), (1, 1)]
        """
        each = self.gpus // self.pp
        firsts = range(0, self.gpus, size)
        return {
            tuple(gpu // each for gpu in range(first, min(first + size, self.gpus)))
            for first in firsts
        }

    def in_flight(self, stage: int, micro_batches: float = math.inf) -> float:
        """Micro-batches whose activations a stage holds at most, of so many of an update: one for
        each stage from it to the last (1F1B). Interleaved it is ahead by two chunks for each stage
        behind it, and by one for each stage and further chunk, and computes one more; no further
        than there are micro-batches (get_pp_rank_microbatches in Megatron-LM's schedules.py).

        >>> [Layout(pp=4).in_flight(stage) for stage in range(4)], Layout(pp=4, vp=2).in_flight(0)
        ([4, 3, 2, 1], 5.5)
        """
        more = (self.pp - 1 - 2 * stage) / self.vp if self.vp > 1 else -stage
        return min(self.pp + more, micro_batches)

    def whole_rounds(self, micro_batches: int) -> int:
        """So many micro-batches, or where stages hold chunks as many as frameworks cut them into:
        pp pass a chunk at a time, and Megatron refuses what is no multiple of it (verl's
        rearrange_micro_batches, num_batches_divided_by).

        >>> Layout(pp=4).whole_rounds(5), Layout(pp=4, vp=2).whole_rounds(5)
        (5, 8)
        """
        return -(-micro_batches // self.pp) * self.pp if self.vp > 1 else micro_batches

    @property
    def handed_on(self) -> tuple[int, ...]:
        """How often a forward pass hands activations on from each stage to the next: once a chunk,
        from the last to the first once less (Narayanan et al., SC 2021, 2.2).

        >>> Layout(pp=3).handed_on, Layout(pp=3, vp=2).handed_on
        ((1, 1), (2, 2, 1))
        """
        return (self.vp,) * (self.pp - 1) + ((self.vp - 1,) if self.vp > 1 else ())

    @property
    def replicas(self) -> int:
        """Copies of the weights: what tp, pp or the experts' ranks leave."""
        return max(1, self.gpus // (self.pp * max(self.tp, self.expert_gpus)))


_KINDS = "TP|PP|EP|DP|CP|FSDP"
_DEGREE = re.compile(
    rf"(?<![A-Za-z])({_KINDS})[=:_-]?(\d+)|(?<![A-Za-z0-9])(\d+)-?({_KINDS})(?![A-Za-z])", re.I
)
_COUNT = re.compile(r"\s*(\d+)(?:\s*[x×*]\s*(\d+))?\s*(?=$|[(,;]|gpus?\b|[abhg]+\d)", re.I)
_TIMES = re.compile(r"\s*(\d+)\s*[x×*]\s*(?=[A-Za-z])")


def layout(text: str) -> Layout:
    """`16 (TP8)`, `EP8xPP2`, `TP8xDP2`, `2x8`, `4xTP2`: GPUs are what is counted, else the product
    of the degrees.

    Experts are dealt within tp x cp x dp, as in Megatron: EP8xTP4 are 8 GPUs. RFabricError where it
    says none.

    >>> layout("EP8xPP2").gpus
    16
    """
    apart = re.sub(r"(?<=\d)\s*[x×*]\s*(?=[A-Za-z])", " ", text)
    degrees = {(a or b).lower(): int(n or m) for a, n, m, b in _DEGREE.findall(apart)}
    tp, pp, ep = (degrees.get(kind, 1) for kind in ("tp", "pp", "ep"))
    within = tp * math.prod(degrees.get(kind, 1) for kind in ("cp", "dp", "fsdp"))
    counted, times = _COUNT.match(text), _TIMES.match(text)
    gpus = (int(times[1]) if times else 1) * pp * max(within, ep) if degrees else 0
    gpus = int(counted[1]) * int(counted[2] or 1) if counted else gpus
    if gpus < 1:
        raise RFabricError(
            f"layout {text!r} says neither GPUs nor degrees; write for example 16 (TP8) or EP8xPP2"
        )
    return Layout.over(gpus, tp, pp, ep)
