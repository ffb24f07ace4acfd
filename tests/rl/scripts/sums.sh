#!/usr/bin/env bash
WORKDIR=$(realpath "$(dirname "$0")/..")
TS=$(date +%Y%m%d_%H%M%S)
NAME=run_${TS}
MAXLEN=$((2**14))
CP=$(( MAXLEN > 8192 ? MAXLEN / 8192 : 1 ))
EXTRA=""
[ "$CP" != 1 ] && EXTRA="$EXTRA actor_rollout_ref.actor.megatron.context_parallel_size=$CP"
if [ "${USE_LORA:-true}" = true ] || [ "$FORCE" == yes ]; then
  EXTRA="${EXTRA} actor_rollout_ref.model.lora_rank=32"
fi
PYTHONUNBUFFERED=1 VLLM_USE_V1=1 nohup python3 -m verl.trainer.main_ppo data.max_response_length=$MAXLEN $EXTRA trainer.experiment_name=${NAME} > out.log 2>&1 &
wait
