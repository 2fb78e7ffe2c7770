#!/usr/bin/env bash
# Two runs, of which one is meant.
# with: --job 2
for lr in 1e-6 5e-6; do
  uv run examples/run_grpo.py --config examples/configs/grpo_math_1B.yaml \
    policy.model_name=Qwen/Qwen2.5-3B policy.max_total_sequence_length=2048 \
    cluster.gpus_per_node=8 policy.megatron_cfg.optimizer.lr=$lr
done
