#!/bin/bash
# The last two GPUs generate.
CUDA_VISIBLE_DEVICES=6,7 trl vllm-serve --model Qwen/Qwen2.5-7B-Instruct \
    --tensor_parallel_size 2 --gpu_memory_utilization 0.9 --max_model_len 5120 &

CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --num_processes 6 --use_deepspeed \
    --zero_stage 3 --mixed_precision bf16 train_grpo.py \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct --dataset_name math --output_dir out \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --num_generations 8 \
    --max_completion_length 4096 --use_vllm True --vllm_mode server --vllm_server_host 0.0.0.0
