"""A compute scheduler of your own: longest groups first, each to the replica with least to do.

    rfabric timeline --policy traffic/longest_first.py --traffic grpo-64
    rfabric compare --topo rfabric --policy sync --policy traffic/longest_first.py

Nobody knows lengths in advance; this shows what knowing them would gain. Copy this file and assign
responses in another way. `rfabric.schedulers.base.Scheduler` says what one gets and must return.
"""

from dataclasses import replace

import numpy as np

from rfabric.schedulers.base import (
    Generated,
    Scheduled,
    Settings,
    Step,
    Workload,
    balance,
    of_steps,
    refuse_settings,
    replica_time,
    steady_time,
    step_of,
)


def longest_first(w: Workload, seed: int, settings: Settings) -> Scheduled:
    """Assign groups of responses to replicas, longest first; the rest is as the recipe says."""
    refuse_settings("longest-first", settings)
    steps = [dealt(w, step_of(w, seed, number)) for number in range(w.steps)]
    most = [max(map(step.generated.response_tokens, range(len(w.replicas)))) for step in steps]
    return of_steps(w, steps, seed, {"most_tokens_of_a_replica": most})


def dealt(w: Workload, step: Step) -> Step:
    """The same responses on other replicas. Those of one prompt share its prefill, so they stay
    together.
    """
    prompts, outputs = (
        np.concatenate(some) for some in (step.generated.prompts, step.generated.outputs)
    )
    groups = np.arange(len(outputs)).reshape(-1, w.generation.group_size)
    parts = [groups[some].ravel() for some in balance(outputs[groups].sum(1), len(w.replicas))]
    seconds = steady_time if w.pipeline == "async" else replica_time
    times = [seconds(w, prompts[part], outputs[part]) for part in parts]
    own = Generated([prompts[p] for p in parts], [outputs[p] for p in parts], times)
    return replace(step, generated=own)


schedulers = {"longest-first": longest_first}
