#!/bin/bash
join_by() { local IFS="$1"; shift; echo "$*"; }
last() { echo "${@: -1}"; }
max() { local m=$1; shift; for x in "$@"; do (( x > m )) && m=$x; done; echo "$m"; }
add_arg() { ARGS+=("$1=$2"); }
ARGS=()
prompt=1024; resp=$((1024 * 8))
add_arg data.max_prompt_length $prompt
add_arg data.max_response_length $resp
add_arg actor_rollout_ref.actor.ppo_max_token_len_per_gpu $(( $(max 4096 $((prompt + resp)) 8192) * 2 ))
LOGGERS=(console wandb tensorboard)
add_arg trainer.logger "[$(join_by , "${LOGGERS[@]}")]"
add_arg trainer.project_name "$(last a b last-one)"
for kv in trainer.nnodes:2 trainer.n_gpus_per_node:8 data.train_batch_size:256; do
  add_arg "${kv%%:*}" "${kv##*:}"
done
python3 -m verl.trainer.main_ppo "${ARGS[@]}" "$@"
