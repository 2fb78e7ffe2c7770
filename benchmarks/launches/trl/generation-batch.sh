#!/bin/bash
# beside: zero3-config.yaml
GPUS=8
PER_DEVICE=4
PROMPTS=128
N=8
accelerate launch --config_file zero3-config.yaml --num_processes $GPUS grpo.py \
  --model_name_or_path Qwen/Qwen3-8B --dataset_name d --output_dir o \
  --per_device_train_batch_size $PER_DEVICE --generation_batch_size $((PROMPTS * N)) \
  --gradient_accumulation_steps $((PROMPTS * N / GPUS / PER_DEVICE / 2)) --num_generations $N \
  --num_iterations 2 --max_completion_length 4096 --vllm_max_model_length 5120 \
  --use_vllm --vllm_enable_sleep_mode --loss_type dapo --epsilon_high 0.28 --beta 0.0
