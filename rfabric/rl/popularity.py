"""Which experts tokens choose: by Zipf's law, every layer with ranks of its own, which drift from
step to step.

    weight of the expert of rank r  1 / r^skew; a token goes to an expert once at most, so none
                                    takes more than 1 / per_token
    drift                           that share of the experts change ranks among themselves between
                                    two steps

That popularity follows Zipf's law, and which exponents occur, is an assumption: no measurement of
it is known here. Capacity limits and losses that balance experts are what makes a small exponent; 0
is even.
"""

import numpy as np

from ..errors import RFabricError
from .setup import Setup

_SEED = 2  # of the streams of numbers that a (seed, ...) gives, the one of experts


def popularity(count: int, per_token: int, skew: float) -> np.ndarray:
    """Share of all tokens that the expert of each rank takes (float64[count], falling, sum 1).

    >>> popularity(4, per_token=2, skew=0.0).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    weights = np.arange(1, count + 1) ** -skew
    for full in range(per_token):  # the first `full` are chosen by every token
        rest = (per_token - full) * weights[full:] / weights[full:].sum()
        if rest[0] <= 1:
            break
    else:
        full, rest = per_token, np.zeros(count - per_token)
    return np.concatenate((np.ones(full), rest)) / per_token


def routing(w: Setup, seed: int, step: int) -> np.ndarray | None:
    """Share of all tokens that the experts of each GPU of a group take in step `step`:
    float64[skew_layers, pp, ep].

    None where all are chosen as often, or there are none. The same (seed, step) gives the same.
    """
    t, experts = w.training, w.model.experts
    if not experts or not t.skew:
        return None
    shares = popularity(experts.count, experts.per_token, t.skew)
    routed = np.empty((t.skew_layers, t.pp, t.ep))
    for layer in range(t.skew_layers):
        for stage in range(t.pp):
            random = np.random.default_rng([seed, layer, stage, _SEED])
            ranks = _ranks(random, experts.count, moving(w), step)
            routed[layer, stage] = shares[ranks].reshape(t.ep, -1).sum(axis=1)
    return routed


def _ranks(random: np.random.Generator, count: int, moved: int, step: int) -> np.ndarray:
    """The rank of each expert in step `step`: drawn once, then `moved` of them swap theirs in a
    ring, step by step.
    """
    ranks = random.permutation(count)
    for _ in range(step):
        some = random.choice(count, moved, replace=False)
        ranks[some] = np.roll(ranks[some], 1)
    return ranks


def moving(w: Setup) -> int:
    """Experts whose rank changes between two steps."""
    return round(w.training.drift * w.model.experts.count)


def imbalance(shares: np.ndarray | None) -> float:
    """How many times an even share the busiest GPU of a group takes, the mean over layers: all
    others wait for it.
    """
    return 1.0 if shares is None else float(shares.max(axis=2).mean()) * shares.shape[2]


def check_skew(w: Setup) -> None:
    """RFabricError where skew, drift or overlap have nothing to act on."""
    t, experts = w.training, w.model.experts
    for key in ("skew", "drift", "overlap_batches"):
        if getattr(t, key) and not experts:
            raise RFabricError(
                f"training.{key}: {getattr(t, key)}, but {w.model.name} has no "
                "experts; leave it out"
            )
    if not experts:
        return
    if t.overlap_batches and t.expert_gpus <= w.gpus_per_server:
        raise RFabricError(
            f"training.overlap_batches: experts on ep {t.ep} GPUs stay in a server of "
            f"{w.gpus_per_server}, so no exchange enters the fabric; leave it out, or use a "
            "larger training.ep"
        )
    layers = max(1, experts.layers // t.pp)
    if t.skew and t.skew_layers > layers:
        raise RFabricError(
            f"training.skew_layers: {t.skew_layers}, but a pipeline stage of {w.model.name} "
            f"has {layers} layers with experts; use {layers} at most"
        )
    if t.drift and moving(w) < 2:
        raise RFabricError(
            f"training.drift: {t.drift:g} of {experts.count} experts moves fewer than two, "
            f"which have no rank to swap; use {2 / experts.count:.2g} at least, or 0"
        )
