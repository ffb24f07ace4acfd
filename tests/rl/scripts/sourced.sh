#!/bin/bash
SCRIPT_DIR="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"
[ -f "$SCRIPT_DIR/environment.inc" ] && . "$SCRIPT_DIR/environment.inc"
source "${SCRIPT_DIR}/layers.inc" 24
MODEL_ARGS+=(--seq-length 4096)
PERF=( --tensor-model-parallel-size ${TP:-2}   # tensor
       --context-parallel-size "${CP:=2}"
       # --expert-model-parallel-size 8
       --max-tokens-per-gpu $(( 8192 * CP )) )
GRPO_ARGS=(
   --advantage-estimator grpo
   --eps-clip 0.2
)
if [ "${CP}" -gt 1 ] && [ -z "${NO_CP:-}" ]; then PERF+=(--use-dynamic-batch-size); fi
python3 train.py "${MODEL_ARGS[@]}" "${PERF[@]}" ${GRPO_ARGS[*]} --hf-checkpoint "${HF_DIR}/Qwen3-8B"
