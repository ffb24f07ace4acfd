"""The one error root. A message names the thing, the value, the limit and the way out."""


class RFabricError(ValueError):
    """Bad input or an impossible request; the command line prints the message and exits with code 2."""


class PaceError(RFabricError):
    """An emulation could not keep pace with its own clock; its figures must not be used (exit code 1)."""


class RunError(RFabricError):
    """A run broke under way: a process died, a flow stalled, bytes went missing (exit code 1)."""
