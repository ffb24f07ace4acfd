#!/bin/bash
CONF=$(cat <<-EOF
	tp: 4
	pp: 2
EOF
)
get() { echo "$CONF" | grep "^$1:" | awk '{print $2}'; }
TP=$(get tp)
PP=$(echo "$CONF" | sed -n 's/^pp: //p')
python train.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP:-1} --actor-num-nodes 4
