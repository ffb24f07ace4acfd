"""A recipe while it is being filled: each value with its origin, and what is assumed."""

import math
from dataclasses import dataclass, field
from typing import Any

from ...errors import RFabricError
from .settings import Settings


@dataclass
class SourcedValues:
    """Recipe values by `section.key`; `origin` says where each came from, `assumed` which nobody
    stated. `shape`: the model's config as far as the job itself spells it out.
    """

    settings: Settings
    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    shape: dict[str, Any] = field(default_factory=dict)

    def put(self, key: str, value: Any, origin: str) -> None:
        """A value that the file, or the user, states."""
        self.values[key], self.origin[key] = value, origin

    def assume(self, key: str, value: Any, why: str) -> None:
        """A value that nobody stated."""
        self.put(key, value, f"assumed: {why}")
        self.assumed.append(key)

    def take(
        self, key: str, *sources: str, default: Any = None, why: str = "the framework's default"
    ) -> Any:
        """The number that the first of `sources` sets, else `default`, assumed; returns it."""
        setting = self.settings.number(*sources)
        if setting:
            self.put(key, setting[1], setting[0])
        elif default is not None:
            self.assume(key, default, f"{why}; {sources[0]} is not set")
        else:
            raise RFabricError(
                f"{self.settings.file}: {sources[0]} is not set, and a recipe cannot do without it"
            )
        return self.values[key]

    def rolled_out(self, origin: str, prompts: float) -> None:
        """Prompts of a step whose groups a filter drops where their rewards are alike."""
        self.settings.notes += (
            f"{origin}: groups whose rewards are alike are dropped; where too few are left the job "
            "rolls out again, which is not modelled",
        )
        if prompts > self.values["generation.batch"]:
            self.put("generation.prompts", math.ceil(prompts), origin)

    def behind(self, staleness: float, origin: str, goes_on: str = "") -> None:
        """Generation that may lack so many weight updates, parts of one included; `goes_on`: what
        says that responses go on over them.
        """
        self.put("pipeline", "async" if goes_on else "bounded-staleness", goes_on or origin)
        self.put("staleness", staleness, origin)

    def gpus(self, training: int, generation: int, colocated: bool, origin: str) -> None:
        """The split of the cluster."""
        for name, count in (("training", training), ("generation", generation)):
            if not count or count != int(count):
                raise RFabricError(
                    f"{self.settings.file}: {origin} leaves {count} GPUs for {name}; it needs "
                    "one or more"
                )
        self.put("cluster.training_gpus", int(training), origin)
        self.put(
            "cluster.generation_gpus", int(generation), "the same GPUs" if colocated else origin
        )
        if colocated:
            self.put("placement", "colocated", origin)

    def micro_batch(self, tokens: float, origin: str) -> None:
        """Tokens of a micro-batch on a context-parallel rank; a sequence longer than the job's
        bound is a micro-batch of its own, as the frameworks make it.
        """
        whole = self.values["generation.max_prompt"] + self.values["generation.max_response"]
        longest = -(-whole // self.values.get("training.cp", 1))
        own = f"{origin} = {tokens}; the longest sequence is a micro-batch of its own"
        self.put(
            "training.micro_batch_tokens",
            int(max(tokens, longest)),
            origin if tokens >= longest else own,
        )

    def mini_batches(self, batch: float, size: float, origin: str) -> None:
        """Optimizer updates a step: batch over mini-batch, both in the same unit."""
        if not size or batch % size:
            raise RFabricError(
                f"{self.settings.file}: {origin}: a mini-batch of {size} does not divide the "
                f"batch of {batch}"
            )
        self.put("training.mini_batches", int(batch // size), origin)
