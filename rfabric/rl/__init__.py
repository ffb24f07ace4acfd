"""The job: its recipe and workload, the steps it makes, its plan, and the traffic it sends."""

from .account import accounts
from .explain import explain
from .items import Item
from .lengths import Lengths
from .lowering import trace_of
from .plan import Phase, Plan, plan_of
from .weight_sync import STRATEGIES
from .workload import Workload, read_recipe, recipe_names

__all__ = [
    "STRATEGIES", "Item", "Lengths", "Phase", "Plan", "Workload", "accounts", "explain", "plan_of",
    "read_recipe", "recipe_names", "trace_of",
]  # fmt: skip
