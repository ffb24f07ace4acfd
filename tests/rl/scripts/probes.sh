#!/bin/bash
NGPU=$(nvidia-smi -L | wc -l)
if [ "$NGPU" -gt 0 ]; then G=$NGPU; else G=8; fi
G2=$(nvidia-smi --list-gpus 2>/dev/null | wc -l || echo 8)
has_nvlink() { nvidia-smi topo -m | grep -q NV; }
if has_nvlink; then HN=1; else HN=0; fi
test -d /opt/x && P=/opt/x || P=/y
if ! command -v uv >/dev/null; then RUN=python; else RUN="uv run"; fi
if [[ -v MYVAR ]]; then Q=1; else Q=2; fi
$RUN train.py --actor-num-gpus-per-node $G --p $P --q $Q --actor-num-nodes ${ARNOLD_WORKER_NUM:-2}
