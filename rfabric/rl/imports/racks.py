"""GPUs that NVLink joins beyond the server they stand in."""

from ...compute.gpus import GPUS
from .settings import JobSettings
from .sourced_values import SourcedValues


def note_rack(recipe: SourcedValues, s: JobSettings) -> None:
    """That NVLink joins the GPUs of more nodes than one, where the job's GPU comes so."""
    gpu = GPUS[recipe.values["cluster.gpu"]]
    server = recipe.values.get("cluster.gpus_per_server", gpu.gpus_per_server)
    if gpu.nvlink_gpus > max(gpu.gpus_per_server, server):
        s.notes += (
            f"cluster.gpu {gpu.name}: NVLink joins the {gpu.nvlink_gpus} GPUs of a rack; here the "
            f"{server} of a node, and what goes to another node leaves by their NICs; say "
            f"cluster.gpus_per_server={gpu.nvlink_gpus} for whole racks",
        )
