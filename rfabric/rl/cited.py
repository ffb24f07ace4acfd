"""Which numbers a term of a step rests on, by the names of `sources`."""

from .phases import experts_in_servers
from .sources import said
from .timing import server_of
from .workload import Workload

# what counts only in some jobs or parts, see `_counts`
_RAILS, _SKEW = "compute.between.RAILS", "recipe.training.skew"
_ROUTING, _TENSOR = "compute.roofline.ROUTING_KERNELS", "compute.sync_time.Software.tensor"
_CAST, _BACKWARD = "compute.training.CAST_BYTES", "compute.training.ATTENTION_BACKWARD"
_HBM = ("catalog.{generation}.hbm_bytes_per_s", "recipe.efficiency.hbm|compute.gpus.HBM_SHARE")
_STAGES = "recipe.training.stage_layers"
_ENGINE_FLOPS = ("recipe.efficiency.matmul", "compute.roofline.MATMUL_SHARE")
_NCCL = tuple(
    f"compute.communication.{name}" for name in ("NcclTuning", "BASE", "REACHED", "NVLS_START")
)
_ENGINE = {
    "weights from HBM": ("recipe.generation.precision", *_HBM),
    "experts from HBM": ("recipe.generation.precision", *_HBM),
    "KV cache from HBM": _HBM,
    "matmul": ("catalog.{generation}.{decoded}_flops", *_ENGINE_FLOPS),
    "attention": ("catalog.{generation}.bf16_flops", *_ENGINE_FLOPS),
    "kernel launches": ("compute.roofline.LAYER_KERNELS", _ROUTING, "compute.gpus.KERNEL_S"),
    "collectives in servers": ("catalog.{generation}.nvlink_bytes_per_s", *_NCCL, _RAILS),
    "activations through HBM": _HBM,
    "states through HBM": ("compute.roofline.of_response", *_HBM),
    "host": ("compute.roofline.HOST_STEP_S", "compute.roofline.HOST_RESPONSE_S"),
}
_TRAINER_HBM = ("catalog.{training}.hbm_bytes_per_s", "compute.gpus.HBM_SHARE")
_TRAINER_NCCL = ("catalog.{training}.nvlink_bytes_per_s", *_NCCL)
_PASSES = {
    "matmul": ("{peak}", "{tuned}", "compute.training.SUSTAINED", "compute.training.WAVE", _SKEW),
    "attention": ("catalog.{training}.bf16_flops", "compute.training.MEGATRON", _BACKWARD),
    "activations through HBM": (*_TRAINER_HBM, "compute.training.LOSS_BYTES", _CAST),
    "tensor collectives in servers": _TRAINER_NCCL,
    "context collectives in servers": _TRAINER_NCCL,
    "expert collectives in servers": (
        "catalog.{training}.nvlink_bytes_per_s",
        "compute.expert_exchange.STARTS",
        "compute.expert_exchange.NVLINK_REACHED",
    ),
    "kernel launches": ("compute.training.pass_kernels", "compute.gpus.KERNEL_S"),
    "host": ("compute.training.HOST_LAYER_S", "compute.training.HOST_PARTS"),
    "pipeline bubble": (
        "compute.training.bubble_share",
        "recipe.training.pp",
        "recipe.training.vp",
        _STAGES,
    ),
}
_ADAM = ("compute.training.optimizer_seconds", "compute.memory.OPTIMIZER_BYTES", *_TRAINER_HBM)
_HOST_ADAM = (
    "compute.training.host_optimizer_seconds",
    "compute.training.HOST_ADAM",
    "compute.training.PCIE_BYTES_PER_S",
)
_NIC = ("recipe.cluster.nic|catalog.{training}.nic_bps", "rl.flows.wire_seconds")
_NETWORK = {
    "experience": ("rl.flows.EXPERIENCE_BYTES_PER_TOKEN",),
    "environments": ("recipe.environments.text_bytes", "recipe.environments.observation_bytes"),
    "reward": ("recipe.environments.text_bytes", "recipe.environments.reward_bytes"),
    "gradients": ("rl.sharing.update_exposed", "recipe.training.grad_dtype"),
    "sharded layers": ("rl.sharing.update_exposed_sharded", "rl.sharing.log_probs_exposed"),
}
_SOFTWARE = {
    "setup": ("compute.sync_time.Software.setup",),
    "pack": ("{packed}", "compute.between.NIC_REACHED"),
    "compare": ("compute.sync_time.Software.restore",),
    "gather": (
        "compute.sync_time.Software.gather",
        "compute.sync_time.Software.unpack",
        "compute.sync_time.Software.load",
        _TENSOR,
    ),
    "load": ("{loaded}",),
    "efficiency": ("recipe.weight_sync.efficiency",),
    "offload": ("rl.phases.OFFLOAD_BYTES_PER_S",),
    "reshard": ("rl.phases.RESHARD_BYTES_PER_S",),
    "experts": ("{handed}",),
}
_TURNS = ("recipe.generation.environment_latency", "recipe.generation.turns")


def cited(w: Workload, part: str, term: str) -> tuple[str, ...]:
    """The numbers behind a term of a part of a phase, for this job."""
    filled = (said(w, name.format(**_words(w))) for name in _names(w, part, term))
    return tuple(name for name in filled if _counts(w, part, name))


def _names(w: Workload, part: str, term: str) -> tuple[str, ...]:
    if part in ("log-prob", "forward-backward"):
        given = ("recipe.efficiency.training", "catalog.{training}.bf16_flops")
        return given if w.efficiency.training and term == "matmul" else _PASSES[term]
    if part == "network":
        return (*_NIC, *_NETWORK.get(term, ()))
    if part == "software":
        return _SOFTWARE[term]
    if part == "optimizer":
        return _HOST_ADAM if w.training.host_optimizer else _ADAM
    return _TURNS if part == "between turns" else _ENGINE[term]


def _words(w: Workload) -> dict[str, str]:
    """What stands in braces."""
    t, g, sync = w.training, w.generation, w.weight_sync
    measured = getattr(w.gpu, f"{t.precision}_matmul_flops")
    tuned = f"catalog.{w.gpu.name}.{t.precision}_matmul_flops"
    software = "compute.sync_time.Software."
    bucket = sync.gather == "bucket" and sync.strategy != "p2p"
    scattered = sync.strategy == "scatter" and not bucket
    return {
        "generation": w.generation_gpu.name,
        "training": w.gpu.name,
        "decoded": server_of(w).multiplied(g.precision),
        "peak": f"catalog.{w.gpu.name}.{t.precision}_flops",
        "tuned": tuned if measured else "compute.gpus.Gpu.matmul_share",
        "packed": "compute.between.NIC_ONE_PAIR" if bucket else f"{software}pack",
        "loaded": f"{software}{'unpack' if scattered else 'load'}",
        "handed": f"{software}{'local_tensor' if experts_in_servers(w) else 'tensor'}",
    }


def _counts(w: Workload, part: str, name: str) -> bool:
    """Whether a number counts in this job."""
    only = {
        _RAILS: w.generation.tp > w.gpus_per_server,
        _ROUTING: bool(w.model.experts),
        _TENSOR: bool(w.model.experts) and (w.colocated or w.weight_sync.strategy != "delta"),
        _SKEW: w.training.skew > 0,
        _STAGES: w.training.stage_layers is not None,
        _CAST: w.training.precision != "bf16",
        _BACKWARD: part == "forward-backward",
    }
    return only.get(name, True)
