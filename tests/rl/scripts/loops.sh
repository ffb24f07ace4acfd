#!/bin/bash
# sweep by nested loops with early exit
for tp in 1 2 4 8; do
  for pp in 1 2 4; do
    mem=$(( 600 / (tp * pp) ))
    (( mem > 80 )) && continue
    best="$tp $pp"
    break 2
  done
done
set -- $best
TP=$1 PP=$2
n=0
until [ $(( 1 << n )) -ge $((TP * PP * 4)) ]; do ((n++)) || true; done
GPUS=$((1 << n))
i=10
while :; do
  i=$((i - 3)); [ $i -le 0 ] && break
done
select_mb() { if [ "$1" -gt 4 ]; then return 1; fi; return 0; }
if select_mb $TP; then MB=2; else MB=1; fi
select_mb 2 && OK=yes || OK=no
python train.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size=$PP --gpus $GPUS --i $i --micro-batch-size $MB --ok $OK
