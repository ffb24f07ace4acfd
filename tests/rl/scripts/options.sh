#!/bin/bash
# options by getopts and a case over $1
usage() { echo "usage: $0 [-n nodes] [-t tp] [--big|--small]" >&2; exit 1; }
NODES=2 TP=2 MODE=small
while [[ $# -gt 0 ]]; do
  case "$1" in
    -n|--nodes) NODES="$2"; shift 2 ;;
    -t) TP=$2; shift; shift ;;
    --tp=*) TP="${1#*=}"; shift ;;
    --big) MODE=big; shift ;;
    --) shift; break ;;
    -*) usage ;;
    *) EXTRA+=("$1"); shift ;;
  esac
done
case "${1:-$MODE}" in
  big) BATCH=1024; CKPT=Qwen3-32B ;;
  sm*) BATCH=128; CKPT=Qwen3-4B ;;
  *) echo "unknown mode"; exit 2 ;;
esac
set -- --actor-num-nodes "$NODES" --tensor-model-parallel-size "$TP"
set -- "$@" --rollout-batch-size $BATCH
[[ $MODE == small ]] && set -- "$@" --colocate || set -- "$@" --rollout-num-gpus 8
python3 train.py "$@" --hf-checkpoint /m/$CKPT ${EXTRA[@]+"${EXTRA[@]}"}
