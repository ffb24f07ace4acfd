#!/bin/bash
#SBATCH -N 16
#SBATCH --gpus-per-node=8
#SBATCH --job-name=big
nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
head_node=${nodes[0]}
ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
if [[ "$ip" == *" "* ]]; then
  IFS=' ' read -ra ADDR <<<"$ip"
  if [[ ${#ADDR[0]} -gt 16 ]]; then ip=${ADDR[1]}; else ip=${ADDR[0]}; fi
fi
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
  node_i=${nodes[$i]}
  srun --nodes=1 -w "$node_i" ray start --address "$ip:6379" --num-gpus 8 --block &
  sleep 1
done
srun --overlap --nodes=1 -w "$head_node" bash -c "
  set -x
  cd /tmp && python3 -m verl.trainer.main_ppo \
    trainer.nnodes=${SLURM_NNODES} trainer.n_gpus_per_node=8 \
    data.train_batch_size=$((SLURM_NNODES * 64)) data.max_response_length=\$((1024*4)) \
    actor_rollout_ref.model.path=Qwen/Qwen3-32B
" > log.txt 2>&1
