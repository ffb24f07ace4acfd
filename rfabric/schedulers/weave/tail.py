"""Long-tail migration: when four of five responses are done, the rest goes to a few GPUs and the
next job begins.

    without   GPU 0..7  |=======.----...............|    held 1, stretch 1
    with      GPU 0..1  |=======.-----------------|      the last fifth, its context prefilled again
              GPU 2..7  |=======|  next job              free

Only requests move, neither KV cache nor weights (Weave, OSDI'26, footnote 4). The times come from
the decode roofline of the workload, at the responses it draws.
"""

import numpy as np

from ...errors import RFabricError
from ...rl.phases import step_of
from ...rl.timing import replica_time
from ...rl.workload import Workload
from .groups import Tail

DONE = 0.8  # Weave: the share of responses at which the rest is moved
ASIDE = 0.25  # of the replicas: "a few"


def tail(workload: Workload, seed: int = 0, done: float = DONE, aside: float = ASIDE) -> Tail:
    """The tail of one step's rollout when `done` of the responses leave the rest to `aside` of the
    replicas.

    RFabricError for shares that do not lie above 0 and up to 1.
    """
    for name, share in (("done", done), ("aside", aside)):
        if not 0 < share <= 1:
            raise RFabricError(f"tail: {name} {share} must lie above 0 and be 1 at most")
    made = step_of(workload, seed, 0).generated
    cut = float(np.quantile(np.concatenate(made.outputs), done))
    until = max(
        replica_time(workload, prompts, np.minimum(outputs, int(cut))).seconds
        for prompts, outputs in zip(made.prompts, made.outputs, strict=True)
    )
    replicas = max(1, round(aside * len(made.outputs)))
    after = _moved(
        workload, np.concatenate(made.prompts), np.concatenate(made.outputs), int(cut), replicas
    )
    share = replicas / len(made.outputs)
    return Tail((until + share * after) / made.seconds, (until + after) / made.seconds)


def _moved(
    workload: Workload, prompts: np.ndarray, outputs: np.ndarray, cut: int, replicas: int
) -> float:
    """Seconds that the responses longer than `cut` take on `replicas` replicas, longest dealt
    first.
    """
    left = np.flatnonzero(outputs > cut)
    left = left[np.argsort(-outputs[left], kind="stable")]
    return max(
        (
            replica_time(workload, prompts[rows] + cut, outputs[rows] - cut).seconds
            for rows in _dealt(left, replicas)
        ),
        default=0.0,
    )


def _dealt(rows: np.ndarray, replicas: int) -> list[np.ndarray]:
    return [rows[i::replicas] for i in range(replicas) if len(rows[i::replicas])]
