"""Settings known by the last part of their key, `actor.optim.optimizer_cpu_offload` and Megatron's
`--optimizer-cpu-offload` alike; those of reference, reward and critic workers are left alone.
"""

from typing import Any

from .approximations import is_on
from .settings import JobSettings

OTHER_ROLES = (
    "ref", "reference", "critic", "value", "reward", "reward_model", "distillation", "teacher",
)  # fmt: skip


def ending(s: JobSettings, *names: str) -> list[tuple[str, Any]]:
    """The settings whose keys end so, of workers that train or generate."""
    found = []
    for key, value in s.values.items():
        *path, last = key.replace("-", "_").split(".")
        if last in names and value is not None and not set(path) & set(OTHER_ROLES):
            found.append((key, value))
    return found


def take_ending(s: JobSettings, *names: str) -> tuple[str, Any] | None:
    """The setting of these names that says yes, else the first; all of them count as read."""
    found = ending(s, *names)
    s.used |= {key for key, _ in found}
    return next((said for said in found if is_on(said[1])), found[0] if found else None)
