"""What the readers of loggers' files share: what they tell, and how they refuse."""

import struct
from collections.abc import Iterator

from ...errors import RFabricError

LoggedMetrics = tuple[str, int, dict[str, float]]  # where, step, metrics
LoggedSteps = dict[int, dict[str, float]]
DAMAGED = (IndexError, KeyError, AttributeError, ValueError, struct.error, TypeError)


def damaged(where: str) -> RFabricError:
    """The refusal of bytes that do not fit their checksum."""
    return RFabricError(f"{where} is damaged: its checksum is not that of its bytes; copy it again")


def of_steps(name: str, steps: LoggedSteps) -> Iterator[LoggedMetrics]:
    """Each step's metrics, gathered."""
    return ((f"{name}, step {step}", step, metrics) for step, metrics in steps.items())
