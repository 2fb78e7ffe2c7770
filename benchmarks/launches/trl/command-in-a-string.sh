#!/bin/bash
# beside: zero3-config.yaml
LAUNCHER="accelerate launch --config_file zero3-config.yaml --num_machines $SLURM_NNODES"
LAUNCHER="accelerate launch --config_file zero3-config.yaml"
CMD="grpo.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name d --output_dir o \
 --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --num_generations 8 \
 --max_completion_length 2048 --use_vllm --vllm_mode colocate --beta 0.04"
$LAUNCHER $CMD
