#!/bin/bash
TP=${TP:-4}
CONFIG=out/job_config.yaml
mkdir -p out
cat > "$CONFIG" <<EOF
policy:
  model_name: Qwen/Qwen3-8B
  max_total_sequence_length: $((4096 * 2))
  train_global_batch_size: 512
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: ${TP}
  generation:
    vllm_cfg: {tensor_parallel_size: 2}
grpo:
  num_prompts_per_step: 64
  num_generations_per_prompt: 8
cluster:
  gpus_per_node: 8
  num_nodes: ${NNODES:-4}
EOF
uv run examples/run_grpo.py --config $CONFIG cluster.num_nodes=2
