#!/bin/bash
run() {
  local nodes=$1 tp=${2:-1}; shift 2
  local -a extra=("$@")
  local name="n${nodes}_tp${tp}"
  uv run python examples/run_grpo_math.py --config x.yaml cluster.num_nodes=$nodes policy.megatron_cfg.tensor_model_parallel_size=$tp \
     logger.name=$name "${extra[@]}"
}
function pick { case $1 in (small) echo 1 ;; (large) echo 8 ;; (*) echo 0;; esac; }
N=$(pick large)
run "$N" 4 grpo.num_prompts_per_step=$((N*8)) policy.max_total_sequence_length=$(( 4 * 1024 ))
