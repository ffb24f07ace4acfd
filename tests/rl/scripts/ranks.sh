#!/bin/bash
export MASTER_ADDR=${MLP_WORKER_0_HOST:-127.0.0.1}
export NNODES=${MLP_WORKER_NUM:-${WORLD_SIZE:-2}}
RANK=${MLP_ROLE_INDEX:-${RANK:-0}}
if [ $RANK -eq 0 ]; then
  ray start --head --port 6379
  if [ "$NNODES" -ge 2 ]; then PP=2; else PP=1; fi
  ray job submit --address="http://127.0.0.1:8265" \
    -- python3 train_async.py --actor-num-nodes ${NNODES} --pipeline-model-parallel-size $PP --rollout-num-gpus 8
else
  ray start --address ${MASTER_ADDR}:6379
  sleep 10d
fi
