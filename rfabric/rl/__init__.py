"""Where traffic comes from: workloads, models, GPUs, lengths, rooflines, weight sync, and the phases they make."""

from .explain import Item, explain
from .gpus import GPUS, Gpu
from .lengths import Lengths
from .lowering import trace_of
from .models import Model
from .plan import Phase, Plan, plan_of
from .weight_sync import STRATEGIES
from .workload import Workload, read_recipe, recipe_names

__all__ = [
    "GPUS", "STRATEGIES", "Gpu", "Item", "Lengths", "Model", "Phase", "Plan", "Workload", "explain", "plan_of",
    "read_recipe", "recipe_names", "trace_of",
]  # fmt: skip
