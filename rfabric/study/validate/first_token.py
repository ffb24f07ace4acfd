"""What the first token waits for beside the steps of an engine.

    first token = what the steps take (`compute/serving`) + CLIENT_S
                + layer_s x layers with experts + client_s x clients,
                  the last two under SGLang and TensorRT-LLM

Their prefill is no CUDA graph: the host launches routing, permutation and grouped matmuls of every
layer with experts one by one. Their clients are answered by one process, which tokenises, queues
and streams for all of them. Rows of vLLM show neither.

FITTED are the two constants of all systems of measured/serving_ttft_tpot*.csv (ai-dynamo's
aiconfigurator, silicon_sample.csv) under one scheduler; a system is a model on a GPU under an
engine. `leave_one_out` fits them again without each system.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

ENGINES_WITH_LAUNCHES = ("sglang", "trtllm")
# From a client to the engine's queue: HTTP, tokenisation (fitted on the same tables); part of the
# time to the first token.
CLIENT_S = 10e-3
# A fit is drawn to DRAWN_TO by so much of a row's weight, and a row that is KNEE off counts less.
DRAWN, DRAWN_TO, KNEE = 0.3, 1e-3, 0.2


class FirstToken(NamedTuple):
    """Seconds a layer with experts, and seconds a client."""

    layer_s: float
    client_s: float

    def seconds(self, waits: "EngineWaits") -> float:
        """What a row's first token waits for beside the engine's steps."""
        return CLIENT_S + self.layer_s * waits.layers + self.client_s * waits.clients


class EngineWaits(NamedTuple):
    """Layers that the host launches one by one, and clients that share its process."""

    layers: int
    clients: int


class MeasuredFirstToken(NamedTuple):
    """A measured first token: its system, seconds, seconds of the engine's steps, its waits."""

    system: str
    measured: float
    steps: float
    waits: EngineWaits


FITTED, NOTHING = FirstToken(2.0e-3, 2.3e-3), FirstToken(0.0, 0.0)


def waits_of(backend: str, layers: int, clients: int) -> EngineWaits:
    """The waits of `clients` of a model that has `layers` with experts."""
    return EngineWaits(layers, clients) if backend in ENGINES_WITH_LAUNCHES else EngineWaits(0, 0)


def fit(rows: Sequence[MeasuredFirstToken]) -> FirstToken:
    """The constants that explain `rows` best: logarithms, a system counting as the root of its
    rows.
    """
    from scipy.optimize import least_squares

    many = Counter(row.system for row in rows)
    weights = np.array([many[row.system] ** -0.25 for row in rows])
    waits = np.array([row.waits for row in rows], float)
    steps = CLIENT_S + np.array([row.steps for row in rows])
    measured = np.log([row.measured for row in rows])

    def misses(x: np.ndarray) -> np.ndarray:
        modelled = np.log(steps + waits @ np.exp(x))
        return np.concatenate([weights * (modelled - measured), DRAWN * (x - np.log(DRAWN_TO))])

    start = np.log([DRAWN_TO, DRAWN_TO])
    return FirstToken(*np.exp(least_squares(misses, start, loss="soft_l1", f_scale=KNEE).x))
