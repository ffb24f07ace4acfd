"""How long things take: GPUs, models, memory, collectives, serving, training, weight sync.

It knows no job.
"""

from .gpus import GPUS
from .named import load_model
