"""The command line: what can be asked (`arguments`), what is done (a module a kind of verb),
how it is shown (`terminal`)."""

from .entry import main

__all__ = ["main"]
