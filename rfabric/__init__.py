"""rfabric: what a network fabric does to the time and cost of one RL post-training step.

Mininet emulates a scaled GPU pod fabric. Its aggregation and core layers are optical circuit
switches (OCS), which a Ryu controller rewires. A flow-level simulator runs the same trace, the same
plan and the same policy objects.

    run = rfabric.simulate("rfabric", "grpo-64", policy="demand")   words, as on the command line
    job = rfabric.recipe("grpo-64", "training.pp=2")                or objects
    rfabric.compare(["fat-tree", "rfabric"], job).save("mine")          a run folder

    fabric recipe trace                   words -> Fabric, Workload, Trace
    simulate emulate                      -> Outcome     to_pandas(), plot(), save(folder)
    compare read_run                      -> Comparison  likewise, of several runs

Everything is loaded on first use. `fabric`, `trace`, `simulate` and `emulate` are verbs and
subpackages at once: `rfabric.fabric("rfabric,pods=4")` is a Fabric, `rfabric.fabric.cost` a module.

    units, errors <- fabric <- routing <- optics <- trace  cables, paths, circuits, flows
    units <- compute;  compute, trace <- rl <- schedulers  what a job computes and when
    simulate  emulate  control  report                     two worlds, the controller, what came out
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_VERBS = ("fabric", "recipe", "trace", "simulate", "emulate", "compare", "read_run")
_NOUNS = {
    "Circuit": "optics", "Circuits": "optics", "Comparison": "report.outcome", "Demand": "optics",
    "Fabric": "fabric", "Link": "fabric", "Node": "fabric", "Outcome": "report.outcome",
    "PaceError": "errors", "Plan": "rl", "Policy": "optics", "Port": "fabric",
    "RFabricError": "errors", "Result": "report.result", "Rewire": "optics", "RunError": "errors",
    "Trace": "trace", "TraceBuilder": "trace", "Traffic": "trace", "Workload": "rl",
}  # fmt: skip

__all__ = [*_VERBS, *_NOUNS]  # noqa: PLE0604  names that __getattr__ finds


def __getattr__(name: str) -> object:
    if name in _NOUNS:
        return getattr(import_module(f".{_NOUNS[name]}", __name__), name)
    if name in _VERBS:
        verb = getattr(import_module(".study.face", __name__), name)
        return globals().get(name, verb)  # the room, where there is one: it has been loaded by now
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _VerbRoom(ModuleType):
    """A subpackage with the name of a verb; to call it is to call the verb."""

    def __call__(self, *args, **settings):
        verb = self.__name__.rpartition(".")[2]
        return getattr(import_module(".study.face", __name__), verb)(*args, **settings)


class _Face(ModuleType):
    """This package: a subpackage that is a verb too becomes a _VerbRoom when it is loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _VERBS and isinstance(value, ModuleType):
            value.__class__ = _VerbRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
