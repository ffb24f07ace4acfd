"""The command line: what can be asked (`arguments`), what is done (`verbs`), how it is shown (`terminal`)."""

from .arguments import main

__all__ = ["main"]
