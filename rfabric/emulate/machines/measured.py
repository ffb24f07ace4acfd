"""What several machines, and the networks between them, carry of what is to be emulated."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ...report.result import Result
from ..world import in_world, job_folder
from .remote import Machines
from .slices import sliced
from .spread import Between, hops_carried


def measure(
    expected: Sequence[Result],
    machines: Machines,
    progress: Callable[[dict], None],
    out: str | Path = "runs",
) -> tuple[float, float]:
    """(packet-hops a second, the largest factor on rates) that the machines and the networks
    between them carry of what these simulations ask for.
    """
    slices = [sliced(result.fabric, len(machines.all)) for result in expected]
    with job_folder(out) as folder:
        hops = in_world({"task": "calibrate"}, folder, progress, machines)["packet_hops"]
    most = float("inf")
    for some in slices:
        if some.tunnels:
            job = {"task": "between", "fabric": some.fabric.to_json()}
            with job_folder(out) as folder:
                rates = in_world(job, folder, progress, machines)["between"]
            most = min(most, Between({(a, b): rate for a, b, rate in rates}).most(some))
    return min(hops_carried(result, hops) for result in expected), most
