"""A recipe while it is being filled: each value with its origin, and what is assumed."""

import math
from dataclasses import dataclass, field
from typing import Any

from ...errors import RFabricError
from .settings import JobSettings


@dataclass
class SourcedValues:
    """Recipe values by `section.key`; `origin` says where each came from, `assumed` which nobody
    stated. `shape`: the model's config as far as the job itself spells it out; `engine`: what
    generates, as the job names it.
    """

    settings: JobSettings
    values: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    shape: dict[str, Any] = field(default_factory=dict)
    engine: str = ""

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence, prompt and response together."""
        return self.values["generation.max_prompt"] + self.values["generation.max_response"]

    @property
    def samples(self) -> int:
        """Responses of a step."""
        return self.values["generation.batch"] * self.values["generation.group_size"]

    def put(self, key: str, value: Any, origin: str) -> None:
        """A value that the file, or the user, states."""
        self.values[key], self.origin[key] = value, origin
        if key in self.assumed:
            self.assumed.remove(key)

    def assume(self, key: str, value: Any, why: str) -> None:
        """A value that nobody stated."""
        self.put(key, value, f"assumed: {why}")
        self.assumed.append(key)

    def take(
        self, key: str, *sources: str, default: Any = None, why: str = "the framework's default"
    ) -> Any:
        """The number that the first of `sources` sets, else `default`, assumed; returns it.
        RFabricError where there is neither.
        """
        setting = self.settings.number(*sources)
        if setting:
            self.put(key, setting[1], setting[0])
        elif default is not None:
            self.assume(key, default, f"{why}; {sources[0]} is not set")
        else:
            raise RFabricError(self.settings.lacks(sources[0]))
        return self.values[key]

    def above_zero(self, key: str) -> tuple[str, int | float] | None:
        """The number above 0 that `key` sets, of those that a job can do without; anything else is
        left out with a note.
        """
        said = self.settings.find(key)
        try:
            number = self.settings.number(key)
        except RFabricError:
            number = None
        if number and number[1]:
            return number
        if said:
            self.settings.notes += (f"{key} = {said[1]} is no number above 0; left out",)
        return None

    def parallel(self, section: str, sign: str = "_", cut: int | None = None) -> None:
        """How many ways Megatron's keys in `section` cut the training, with `sign` in their words;
        what later frameworks shorten is read too. Experts are cut `cut` ways by default, or as the
        rest, as Megatron does.
        """
        for key, name in (
            ("tp", "tensor"),
            ("pp", "pipeline"),
            ("cp", "context"),
            ("ep", "expert"),
        ):
            kinds = (f"{name}-model-parallel-size", f"{name}-parallel-size")
            names = [section + kind.replace("-", sign) for kind in kinds]
            self.take(f"training.{key}", *(names[::-1] if key == "cp" else names), default=1)
        name = section + "expert-tensor-parallel-size".replace("-", sign)
        default = cut or self.values["training.tp"]
        why = "as all examples have it" if cut else "as tp, by Megatron"
        self.take("training.etp", name, default=default, why=why)

    def drop(self, key: str) -> None:
        """A value that the job has no use for is as if it had never been filled in."""
        del self.values[key], self.origin[key]
        self.assumed = [other for other in self.assumed if other != key]

    def log_probs(self, reference: bool, of: str = " (KL)", engines: str = "") -> None:
        """Passes over a step's tokens before the training: the old policy's, unless `engines` says
        that the log-probs of those that generated serve for it; a reference's.
        """
        said = [f"{engines}: the engines' own for the old policy's" if engines else "old policy"]
        said += [f"reference policy{of}"] * reference
        self.put("training.log_prob_passes", reference + (not engines), " and ".join(said))

    def recompute(self, full: bool, origin: str, stated: bool = True) -> None:
        """Whether all activations are computed again in the backward pass, or a few; not `stated`:
        by the framework's default, as `origin` is not set.
        """
        value = "full" if full else "selective"
        if stated:
            self.put("training.recompute", value, origin)
        else:
            why = f"the framework's default; {origin} is not set"
            self.assume("training.recompute", value, why)

    def zero(self, stage: float, origin: str) -> None:
        """What DeepSpeed's ZeRO shards: states from stage 1 on, gradients from 2, parameters in 3.
        Gradients are sent in the weights' format (communication_data_type in its engine.py).
        """
        kind = {0: "replicated", 3: "sharded"}.get(int(stage), f"zero{int(stage)}")
        self.put("training.optimizer", kind, f"{origin}: ZeRO-{int(stage)}")
        self.put("training.grad_dtype", "bf16", "DeepSpeed sends gradients as it holds weights")
        if kind == "sharded":
            self.put("training.ends", "apart", "DeepSpeed lets go of each module after it computed")

    def recompute_some(self, origin: str) -> None:
        """Torchtitan's selective recomputation, also AReaL's Archon's, of about every other matmul:
        between what a recipe can say, so that which of them fits is left open.
        """
        why = f"{origin}: every other matmul is computed again; here none is, or all are"
        self.assume("training.recompute", "selective", why)

    def adapters(self, switch: str, on: bool, rank: str, default: int) -> None:
        """LoRA of a framework in which `switch` turns it on; where it is off, that a `rank` is set
        changes nothing, which is said.
        """
        self.settings.used |= {switch, rank}
        if on:
            self.take("training.lora_rank", rank, default=default)
        elif rank in self.settings.values:
            self.settings.notes += (
                f"{rank}: {switch} turns no adapters on; all weights are trained",
            )

    def stretched(self, *keys: str) -> None:
        """Positions that the job asks of the model beyond its config, where its sequences fit."""
        asked = self.settings.number(*keys)
        if asked and asked[1] >= self.longest:
            self.put("generation.context", *asked[::-1])

    def bounded(self, *keys: str) -> None:
        """What an engine takes of one sequence, prompt and response, where it is less than both."""
        whole = next((said for key in keys if (said := self.above_zero(key))), None)
        if whole is None or whole[1] >= self.longest:
            return
        prompt = self.values["generation.max_prompt"]
        if prompt < whole[1] < self.values["generation.max_response"]:
            self.put("generation.max_response", whole[1] - prompt, f"{whole[0]} less the prompt")
            return
        self.settings.notes += (
            f"{whole[0]} = {whole[1]}: prompt and response together are no longer; here each may "
            "be as long as its own bound",
        )

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

    def prefill(self, gpus: float, key: str) -> None:
        """So many of the GPUs that generate prefill for the others, where a recipe can say so."""
        v = self.values
        whole, engine = v["cluster.generation_gpus"], v["generation.tp"]
        fits = 0 < gpus < whole and gpus % engine == 0 == whole % engine
        fits = fits and v.get("staleness", 1) % 1 == 0  # a part of a batch cuts it in two
        if fits and engine <= v["cluster.gpus_per_server"] and v.get("pipeline") != "async":
            self.put("generation.prefill_gpus", int(gpus), key)
            return
        self.settings.notes += (
            f"{key}: engines of their own for prompts are not read; say generation.prefill_gpus",
        )

    def gpus(self, training: int, generation: int, colocated: bool, origin: str) -> None:
        """The split of the cluster. RFabricError where none are left to generate or to train."""
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
        longest = -(-self.longest // self.values.get("training.cp", 1))
        own = f"{origin} = {tokens}; the longest sequence is a micro-batch of its own"
        self.put(
            "training.micro_batch_tokens",
            int(max(tokens, longest)),
            origin if tokens >= longest else own,
        )

    def whole_sequences(self, count: float, origin: str) -> None:
        """A micro-batch of so many sequences, however short; its memory is that of the longest."""
        tokens = -(-count * self.longest // self.values.get("training.cp", 1))
        self.put("training.micro_batch_tokens", tokens, f"{origin} x the longest sequence / cp")
        self.put("training.micro_batch_sequences", int(count), origin)

    def log_prob_micro_batch(
        self, tokens: tuple[str, float] | None, sequences: tuple[str, float] | None
    ) -> None:
        """Micro-batches of the passes before the training, where those of updates are others: of so
        many sequences, else of so many tokens on a context-parallel rank.
        """
        v, key = self.values, "training.log_prob_micro_batch"
        of_updates = v.get("training.micro_batch_sequences", 0), v["training.micro_batch_tokens"]
        if not v["training.log_prob_passes"]:
            return
        if sequences and sequences[1]:
            if int(sequences[1]) != of_updates[0]:
                self.put(f"{key}_sequences", int(sequences[1]), sequences[0])
        elif tokens and tokens[1]:
            held = int(max(tokens[1], -(-self.longest // v.get("training.cp", 1))))
            if (0, held) != of_updates:
                self.put(f"{key}_tokens", held, tokens[0])

    def padding(self, to: str, origin: str, note: str, attention: bool = True) -> None:
        """What sequences are filled up to, with what a reader must know of it; not `attention`:
        which leaves padding out, as Hugging Face's FlashAttention does.
        """
        self.put("training.padding", to, origin)
        if not attention:
            self.put("training.padded_attention", False, "FlashAttention of Hugging Face's models")
        self.settings.notes += (f"{origin}: padding is computed, {note}",)

    def mini_batches(self, batch: float, size: float, origin: str) -> None:
        """Optimizer updates a step: batch over mini-batch, both in the same unit. RFabricError
        where they do not divide.
        """
        if not size or batch % size:
            raise RFabricError(
                f"{self.settings.file}: {origin}: a mini-batch of {size} does not divide the "
                f"batch of {batch}"
            )
        self.put("training.mini_batches", int(batch // size), origin)

    def whole_batches(self, each: float, origin: str, who: str) -> None:
        """Optimizer updates of `each` responses by a framework that leaves out what is no whole
        batch; here all are a little larger. RFabricError where there is not one.
        """
        samples = self.samples
        if not each or not samples % each or each > samples:
            self.mini_batches(samples, each, origin)
            return
        whole, left = divmod(samples, each)
        updates = next(n for n in range(int(whole), 0, -1) if samples % n == 0)
        self.put("training.mini_batches", updates, origin)
        self.settings.notes += (
            f"{origin}: {who} trains on {whole} batches of {each} and leaves the last {left} of "
            f"{samples} samples out; here on {updates} of {samples // updates}",
        )
