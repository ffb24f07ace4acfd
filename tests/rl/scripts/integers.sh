#!/usr/bin/env bash
set -xeuo pipefail
declare -i NNODES=${NNODES:-4}
declare -i GPUS=8
declare -i WORLD=NNODES*GPUS
declare -ir TP=2 PP=2
declare -i DP="WORLD/(TP*PP)"
typeset -i BSZ=DP*16
BSZ+=32
readonly MODEL=Qwen/Qwen3-8B
declare -x VLLM_USE_V1=1
local_batch() { local -i n=$1*2; echo "$n"; }
python3 -m verl.trainer.main_ppo trainer.nnodes=$NNODES trainer.n_gpus_per_node=$GPUS \
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$TP \
  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=$PP \
  data.train_batch_size=$BSZ actor_rollout_ref.actor.ppo_mini_batch_size=$((BSZ/2)) \
  actor_rollout_ref.model.path=$MODEL actor_rollout_ref.rollout.n=$(local_batch 4) x.dp=$DP
