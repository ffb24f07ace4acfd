"""The plain pipelines, without a scheduler of their own: in turn, colocated, one step ahead, or
several.
"""

from dataclasses import replace

from ..errors import RFabricError
from ..rl.workload import Workload
from .base import Scheduled, Settings, as_it_stands, refuse_settings


def sync(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Static and disaggregated: a step generates with the weights of the step before."""
    refuse_settings("sync", settings)
    return as_it_stands(_apart(w, "sync"), seed)


def one_step_off(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Generation is one step ahead of training."""
    refuse_settings("one-step-off", settings)
    return as_it_stands(_apart(w, "one-step-off"), seed)


def partial_rollouts(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Responses go on over weight updates; `staleness` bounds how many.

    RFabricError for a staleness that is no number of updates (Workload says which are).
    """
    refuse_settings("async", settings, "staleness")
    text = settings.get("staleness", str(w.staleness or 1))
    try:
        staleness = int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise RFabricError(
            f"async: staleness {text!r} is no number of weight updates; write for example 0.5 or 2"
        ) from None
    return as_it_stands(_apart(w, "async", staleness), seed)


def colocated(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """All GPUs of both pools generate, then all of them train. RFabricError where these do not
    divide as the job says.
    """
    refuse_settings("colocated", settings)
    every = w.cluster.training_gpus if w.colocated else w.gpus
    cluster = replace(w.cluster, training_gpus=every, generation_gpus=every)
    # one copy on all that trained is one on all that train now
    training = replace(w.training, fsdp_size=0) if w.copies == 1 else w.training
    try:
        pooled = replace(
            w, cluster=cluster, training=training, placement="colocated", pipeline="sync",
            staleness=None,
        )  # fmt: skip
    except RFabricError as error:
        raise RFabricError(f"colocated, where all {every} GPUs train: {error}") from error
    return as_it_stands(pooled, seed)


def _apart(w: Workload, pipeline: str, staleness: float | None = None) -> Workload:
    if w.colocated:
        raise RFabricError(
            f"pipeline {pipeline} needs a pool for each side, but placement is colocated; use "
            f"scheduler colocated, or placement disaggregated"
        )
    return replace(w, pipeline=pipeline, staleness=staleness)
