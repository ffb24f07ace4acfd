#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1 TP=8; export PP; PP=2
nodes=${NODES:?set NODES}
GPUS_PER_NODE=8
TOTAL=$((nodes*GPUS_PER_NODE))
half=$((TOTAL/2))
mapping="list(range(0,${half}))"
inf="list(range($half,$TOTAL))"
python examples/start_agentic_pipeline.py --config_path=cfg --config_name=agentic actor_train.device_mapping="$mapping" actor_infer.device_mapping="$inf" tp=$TP pp=$PP
