set -e
declare -A TPOF=( [7b]=1 [14b]=2 [32b]=4 [72b]=8 )
declare -A NODES; NODES[7b]=1; NODES[14b]=2; NODES[32b]=4; NODES[72b]=8
SIZES=(7b 14b 32b 72b)
idx=${SIZE_IDX:-2}
size=${SIZES[idx]}
(( n = NODES[$size], tp = TPOF[$size] ))
(( SIZES_N = ${#SIZES[@]} ))
layers=(28 48 64 80)
(( pp = layers[idx] > 60 ? 2 : 1 ))
(( total = n * 8, dp = total / tp / pp ))
if (( dp >= 4 && layers[idx+1] == 80 )); then MB=4; else MB=1; fi
python train.py --actor-num-nodes $n --actor-num-gpus-per-node 8 --tensor-model-parallel-size $tp \
 --pipeline-model-parallel-size $pp --hf-checkpoint /models/Qwen2.5-${size^^} --rollout-batch-size $(( dp * 16 )) \
 --micro-batch-size $MB --colocate --num-rollout $SIZES_N
