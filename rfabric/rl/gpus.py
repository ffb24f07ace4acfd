"""GPUs as data: peaks, memory, links. Facts restated from data sheets and public tables; every row names its source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU: dense bf16 FLOP/s, HBM bytes and bytes/s, NVLink bytes/s one way, NIC bit/s, GPUs a server."""

    name: str
    bf16_flops: float
    hbm_bytes: float
    hbm_bytes_per_s: float
    nvlink_bytes_per_s: float
    nic_bps: float
    gpus_per_server: int
    source: str


_SHEET = "NVIDIA data sheet; github.com/stas00/ml-engineering compute/accelerator and network"

GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100", 312e12, 80e9, 2.0e12, 300e9, 200e9, 8, f"{_SHEET}; NIC: DGX A100, HDR 200"),
        Gpu("H100", 989e12, 80e9, 3.35e12, 450e9, 400e9, 8, f"{_SHEET}; NIC: DGX H100, NDR 400"),
        # The H100 with NVLink cut to 400 GB/s both ways. HBM: Weave and the H100's sheet say 3.35 TB/s, shallowsim 4.0.
        Gpu("H800", 989e12, 80e9, 3.35e12, 200e9, 400e9, 8, "zartbot/shallowsim gpu_info.csv; Weave (OSDI'26) Table 1"),
        Gpu("H20", 148e12, 96e9, 4.0e12, 450e9, 400e9, 8, "zartbot/shallowsim gpu_info.csv; Weave (OSDI'26) Table 1"),
    )
}
