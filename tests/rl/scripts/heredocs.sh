#!/bin/bash
CONFIG=$(mktemp)
cat > cfg.tmpl <<'EOF'
tp=${TP}
EOF
export TP=4
envsubst < cfg.tmpl > cfg.env
source cfg.env
python3 - <<PY
print($TP)
PY
NUM=$(python3 -c "import os; print(2*8)")
ARGS="--actor-num-nodes 2 --tensor-model-parallel-size ${TP} --colocate"
ARGS="$ARGS --rollout-batch-size 64"
ARGS+=" --hf-checkpoint /x/Qwen3-8B"
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"env_vars": {"A": "1", "B": "2"}}' -- python3 train.py $ARGS --n-samples-per-prompt $NUM
