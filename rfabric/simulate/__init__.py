"""The flow-level world: the same trace, plan and policies as the emulator, as max-min fair fluids,
at any scale.
"""

from .flows import Deadlock, Engine, completion_times, deadlock
from .reference import EVENTS, FINISHED, READY

__all__ = ["EVENTS", "FINISHED", "READY", "Deadlock", "Engine", "completion_times", "deadlock"]
