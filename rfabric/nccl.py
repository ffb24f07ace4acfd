"""Numbers of NCCL's source that several rooms need."""

# GB/s a direction of one NVLink by compute capability (src/graph/topo.h: SM60_NVLINK_BW ...)
NVLINK = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
# the same of one xgmi (Infinity Fabric) link of an AMD GPU, by `gcn` (RCCL 5.4.3, src/graph/topo.h:
# VEGA_XGMI_WIDTH, MI200_XGMI_WIDTH)
XGMI = {906: 24.0, 908: 24.0, 910: 36.0}
