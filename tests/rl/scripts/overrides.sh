#!/bin/bash
set -u
ARGS=(
  actor_rollout_ref.actor.fsdp_config={param_offload:True,fsdp_size:-1}
  +actor_rollout_ref.model.override_config.attention_dropout=0.
  ++trainer.val_before_train=False
  trainer.logger=['console','wandb']
  algorithm.adv_estimator=grpo
  "data.train_files=['/a/b.parquet', '/c d.parquet']"
  ~critic
)
ROLLOUT=(actor_rollout_ref.rollout.{name=vllm,n=8,tensor_model_parallel_size=2})
python3 -m verl.trainer.main_ppo "${ARGS[@]}" ${ROLLOUT[@]} $*
