#!/bin/bash
MODEL=${1:-qwen3-30b-a3b}; shift || true
case $MODEL in
  qwen3-*b-a*b) MOE=1; EP=8 ;;&
  qwen3-30b*) NODES=4; TP=4 ;;
  qwen3-235b*) NODES=16; TP=4; PP=8 ;;
  *) MOE=0; EP=1; NODES=1 TP=1 ;;
esac
PP=${PP:-1}
if ((MOE)); then
  EXTRA=(actor_rollout_ref.actor.megatron.expert_model_parallel_size=$EP)
elif [[ $NODES -gt 1 ]]; then
  EXTRA=(x.nothing=1)
fi
python -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer' \
  trainer.nnodes=$NODES actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$TP \
  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=$PP "${EXTRA[@]}" "$@"
