#!/bin/bash
export CONTAINER=/images/nemo-rl.sqsh
export MODEL_NAME=Qwen/Qwen3-8B
read_only="HF_HUB_OFFLINE=1"
export COMMAND="${read_only} uv run examples/run_grpo.py --config examples/configs/grpo_math_1B.yaml policy.model_name=${MODEL_NAME} policy.max_total_sequence_length=4096 cluster.gpus_per_node=8 cluster.num_nodes=2 policy.generation.vllm_cfg.tensor_parallel_size=2"
sbatch --nodes=2 --gres=gpu:8 ray.sub
