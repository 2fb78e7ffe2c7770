#!/usr/bin/env bash
set -x
NPROC=${NPROC:-8}
torchrun --standalone --nproc_per_node=$NPROC train_grpo_math.py \
    --deepspeed configs/ds_zero3.json \
    --model_name_or_path /data/models/Qwen2.5-14B-Instruct \
    --dataset_name /data/math --output_dir /data/out \
    --per_device_train_batch_size 2 --gradient_accumulation_steps 16 \
    --num_generations 8 --max_completion_length 2048 --vllm_max_model_length 3072 \
    --bf16 True --gradient_checkpointing True --use_vllm True --vllm_mode colocate \
    --vllm_tensor_parallel_size 2 --vllm_gpu_memory_utilization 0.25 \
    --beta 0 --logging_steps 1 --report_to tensorboard
