"""What verl's FSDP gathers together, and when it sends gradients (apply_fsdp2 in
verl/utils/fsdp_utils.py, _gradient_sync_context in verl/workers/engine/fsdp/transformer_impl.py).
"""

from ...compute.models import Model
from .settings import JobSettings
from .sourced_values import SourcedValues


def put_units(recipe: SourcedValues, s: JobSettings, actor: str) -> None:
    """FSDP2 makes embedding and logits units of their own; gradients wait for the last micro-batch
    where they are told to.
    """
    section = f"{actor}.fsdp_config"
    strategy = s.find(f"{section}.strategy", f"{actor}.strategy")
    if strategy and "fsdp2" in str(strategy[1]):
        recipe.put("training.ends", "apart", f"{strategy[0]} = {strategy[1]}")
    key = f"{section}.use_no_sync_for_gradient_accumulation"  # off in verl's own files
    if s.find(key) is None or not s.flag(key):
        return
    if "training.fsdp_size" in recipe.values:
        s.notes += (
            f"{key}: gradients are added up whole and sent once an update; in copies of sharded "
            "parameters that is not modelled, and here every micro-batch sends them",
        )
        return
    recipe.put("training.no_sync", True, key)


def fit_units(recipe: SourcedValues, s: JobSettings, model: Model) -> None:
    """An embedding that is tied stays in FSDP2's root; gradients that are sent once leave layer by
    layer.
    """
    if model.tied and "fsdp2" in recipe.origin.get("training.ends", ""):
        recipe.drop("training.ends")
    if recipe.values.get("training.no_sync"):
        layers = max(1, model.layers // recipe.values.get("training.pp", 1))
        recipe.put("training.buckets", layers, "FSDP scatters gradients layer by layer")
