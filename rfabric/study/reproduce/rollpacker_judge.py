"""RollPacker's judge beside the actor, run with a judge of our choice: the paper states neither its
model, nor its share of a GPU's multiprocessors, nor what was timed.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...schedulers.rollpacker import SYNCHRONOUS, Judge, run, verdicts
from . import PaperRow, span
from .rollpacker_inputs import JOBS, job

SHARES_OF_SMS = (0.1, 0.2, 0.5)


def experiment_judge(seed: int) -> Iterator[PaperRow]:
    """A judge as large as its actor, one beside each replica of the three jobs: rollout and reward
    over those where the two take turns on whole GPUs, and judging a batch that is all there over
    loading all layers before they are read.
    """
    for share in SHARES_OF_SMS:
        gains = [_gains(name, share, seed) for name in JOBS]
        beside, layered = (span([gain[i] for gain in gains]) for i in (0, 1))
        at = f"{share:.0%} of the SMs"
        yield PaperRow(f"judge beside the actor (MPS), {at}: gain", 1.25, beside)
        yield PaperRow(f"judge offloaded layer by layer, {at}: gain", 1.4, layered)


def _gains(name: str, share: float, seed: int) -> tuple[float, float]:
    """Of standing side by side, and of layers that are loaded while others are read."""
    w = job(name)
    judge = Judge(w.model, share)
    (alone,), (beside,) = (run(w, seed, SYNCHRONOUS, 1, rewards) for rewards in (None, judge))
    played = alone.played
    tokens = played.prompts[:, None] + played.outputs

    def judging(of: Judge) -> float:
        """Seconds of the batch, all there."""
        return float(verdicts(of, w, np.zeros(tokens.shape), tokens).ends.max())

    in_turns = alone.judged + judging(replace(judge, share=1.0))
    return in_turns / beside.judged, judging(replace(judge, layered=False)) / judging(judge)
