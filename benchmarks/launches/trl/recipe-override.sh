#!/bin/bash
# beside: zero3-config.yaml recipe-math.yaml
set -e
export WANDB_PROJECT=grpo
accelerate launch --config_file zero3-config.yaml --num_processes=4 --main_process_port 29511 \
  grpo.py --config recipe-math.yaml --vllm_tensor_parallel_size 2 --num_generations=8 \
  --output_dir data/four "$@"
