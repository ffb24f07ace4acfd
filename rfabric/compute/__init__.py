"""How long things take: GPUs, models, memory, collectives, serving, training, weight sync.

It knows no job.
"""

from .gpus import GPUS, Gpu
from .layout import Layout
from .models import Model
from .named import find_model, load_model, read_model

__all__ = ["GPUS", "Gpu", "Layout", "Model", "find_model", "load_model", "read_model"]
