#!/bin/bash
: "${NNODES:=4}" "${GPUS:=8}"
: ${TP:=$(( GPUS / 2 ))}
export A=B C=D MODEL_SIZE=14 NCCL_DEBUG=INFO
HOSTS="node1,node2,node3,node4"
HL=(${HOSTS//,/ })
N=${#HL[@]}
[[ "Qwen2.5-${MODEL_SIZE}B-Instruct" =~ ([0-9.]+)-([0-9]+)B ]] && { VER=${BASH_REMATCH[1]}; SZ=${BASH_REMATCH[2]}; }
if [[ $SZ -ge 14 && ( $N -eq 4 || $N -eq 8 ) ]]; then OFFLOAD=True; else OFFLOAD=False; fi
mapfile -t EXTRA <<EOT
actor_rollout_ref.actor.fsdp_config.param_offload=$OFFLOAD
trainer.nnodes=$N
trainer.n_gpus_per_node=$GPUS
EOT
read -r PROMPT RESP <<< "2048 16384"
printf -v NAME '%s-%sB-%dn' grpo "$SZ" "$N"
torchrun --nnodes $NNODES --nproc_per_node "$GPUS" -m verl.trainer.main_ppo "${EXTRA[@]}" \
  data.max_prompt_length=${PROMPT} data.max_response_length=${RESP} trainer.experiment_name="$NAME" \
  actor_rollout_ref.model.path="Qwen/Qwen${VER}-${SZ}B-Instruct" actor_rollout_ref.rollout.tensor_model_parallel_size=$TP
