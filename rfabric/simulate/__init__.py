"""The flow-level world: the same trace, plan and policies as the emulator, as max-min fair fluids,
at any scale.
"""

from .flows import EVENTS, FINISHED, READY, Deadlock, Engine, completion_times, deadlock

__all__ = ["EVENTS", "FINISHED", "READY", "Deadlock", "Engine", "completion_times", "deadlock"]
