"""GPUs as data: peaks, memory, links, prices.

Facts restated from data sheets and public tables in `catalog.csv`, where every
row names its source and a note says where sources disagree.

>>> GPUS["H100"].bf16_flops, find_gpu("NVIDIA H100 80GB HBM3").name
(989000000000000.0, 'H100')

FLOP/s are dense. A server is what has its own NICs and host; `nvlink_gpus` share NVLink: 8 in most
servers, the 72 of 18 servers in an NVL72 rack. HBM bytes are those a driver reports: the 80 GB of a
data sheet are 80 GiB.
"""

import csv
import re
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median

from ..errors import RFabricError

PRECISIONS = ("bf16", "fp8", "fp4")  # of tensor cores
# github.com/ai-dynamo/aiconfigurator systems/h100_sxm.yaml: mem_bw_empirical_scaling_factor, the
# share of a data sheet's HBM rate that kernels reach, and mem_empirical_constant_latency, the least
# one takes.
HBM_SHARE, KERNEL_S = 0.80, 3e-6


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU: dense FLOP/s, HBM bytes and bytes/s, NVLink bytes/s one way, NIC bit/s a
    GPU, GPUs a server.

    `*_matmul_flops`: what a tuned matmul was measured to reach, where it was. None: it has none, or
    none is published.
    """

    name: str
    bf16_flops: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    nvlink_bytes_per_s: float
    nic_bps: float
    gpus_per_server: int
    source: str
    nvlink_gpus: int = 8
    nics_per_server: int = 8
    fp8_flops: float | None = None
    fp4_flops: float | None = None
    bf16_matmul_flops: float | None = None
    fp8_matmul_flops: float | None = None
    power_w: float | None = None
    usd_per_hour: float | None = None
    note: str = ""

    def peak(self, precision: str = "bf16") -> float:
        """Dense FLOP/s at `bf16`, `fp8` or `fp4`; RFabricError where its tensor cores lack that."""
        if precision not in PRECISIONS:
            raise RFabricError(
                f"precision {precision!r} is not known; use one of {', '.join(PRECISIONS)}"
            )
        flops = getattr(self, f"{precision}_flops")
        if flops is None:
            has = ", ".join(p for p in PRECISIONS if getattr(self, f"{p}_flops"))
            raise RFabricError(f"GPU {self.name} has no {precision} matmul; use {has}")
        return flops

    def matmul_share(self, precision: str = "bf16") -> float:
        """Share of the peak that a tuned matmul reaches: measured, else the median over the GPUs
        that were.
        """
        done = getattr(self, f"{precision}_matmul_flops", None)
        if done:
            return done / self.peak(precision)
        return median(
            [
                getattr(gpu, f"{p}_matmul_flops") / gpu.peak(p)
                for gpu in GPUS.values()
                for p in (["fp8"] if precision == "fp4" else [precision])
                if getattr(gpu, f"{p}_matmul_flops")
            ]
        )


def find_gpu(text: str) -> Gpu | None:
    """The GPU that `text` names in whatever spelling: `h100_sxm`, `DGX-H100`, `NVIDIA
    A100-SXM4-40GB`, `h200_8gpu_busbw`.

    None where it names none, or a sibling that the catalog lacks: another memory, form (PCIe, NVL),
    slice or letter. The first where it names several.

    >>> find_gpu("NVIDIA A100-SXM4-40GB").name, find_gpu("H20 141GB").name, find_gpu("H200 NVL")
    ('A100-40GB', 'H20-3e', None)
    """
    wanted = str(text).upper()
    matched = _NAMES.search(wanted)
    if not matched or _PART.search(wanted):
        return None
    base = matched[1]
    forms = set(_FORM.findall(wanted)) - _PLAIN.get(base, set())
    kinds = [gpu for gpu in GPUS.values() if gpu.name.upper().split("-")[0] == base]
    of_form = [gpu for gpu in kinds if set(_FORM.findall(gpu.name.upper())) == forms]
    # what nobody says more of is the row without a mark, which stands first
    marked = [gpu for gpu in of_form if "-" in gpu.name and _marked(gpu, wanted)]
    held = (gpu for gpu in marked or of_form if _holds(gpu, wanted))
    return next(held, None)


def _marked(gpu: Gpu, wanted: str) -> bool:
    """Whether `wanted` says what tells this row from its siblings."""
    mark = gpu.name.upper().split("-")[1]
    return bool(re.search(rf"(?<!\d){mark.removesuffix('B')}", wanted))


def _holds(gpu: Gpu, wanted: str) -> bool:
    """Whether the GB that a name may state are its own, or its server's: DGX A100 640GB."""
    stated = _MEMORY.search(wanted)
    sizes = [gpu.hbm_bytes * count for count in (1, gpu.gpus_per_server)]
    units = (1e9, 2**30)
    return not stated or any(
        abs(int(stated[1] or stated[2]) * unit / size - 1) < _NEAR
        for unit in units
        for size in sizes
    )


# GB, or G where no NIC has so many: the card's memory, or its server's
_MEMORY = re.compile(
    r"(?<!\d)(?:(\d{2,4})[ _-]?GB(?![A-Z/])|(16|24|32|40|48|64|80|9[46]|14[14]|192)G(?![A-Z0-9]))"
)
_NEAR = 0.08  # drivers report some less than data sheets; an H100 of 94 GB is none of 80
_FORM = re.compile(r"PCIE|NVL\d*|CNX")
# of a base row: what it is sold as in any case
_PLAIN = {
    "L40S": {"PCIE"},
    "GB200": {"NVL72"},
    "GB300": {"NVL72"},
    "B200": {"NVL8"},
    "B300": {"NVL8", "NVL16"},
}
_PART = re.compile(r"(?<![A-Z])MIG(?![A-Z])|\dG\.\d+GB")  # a slice of a GPU


def _catalog() -> dict[str, Gpu]:
    with (Path(__file__).parent / "catalog.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: _gpu(row) for row in csv.DictReader(file)}


def _gpu(row: dict[str, str]) -> Gpu:
    made = {"int": int, "float": float, "str": str}
    kinds = {f.name: made.get(getattr(f.type, "__name__", ""), float) for f in fields(Gpu)}
    return Gpu(
        **{key: kinds[key](value) for key, value in row.items() if value or kinds[key] is str}
    )


GPUS = _catalog()
# Longest names first; a letter before the name would make it another one, but for the x of `8xH100`
# and `DGXH100`, and so would one behind it (H20A, A100X), but for the form or a count.
_KINDS = sorted({name.upper().split("-")[0] for name in GPUS}, key=len, reverse=True)
_NAMES = re.compile(rf"(?<![A-WYZ])({'|'.join(_KINDS)})(?=$|[^0-9A-Z]|SXM|PCIE|NVL|CNX|HBM|X\d)")
