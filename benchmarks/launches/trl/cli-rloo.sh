#!/usr/bin/env bash
MODEL=${MODEL:-Qwen/Qwen2.5-1.5B-Instruct}
trl rloo --model_name_or_path "$MODEL" \
    --dataset_name my-org/tldr --reward_funcs rewards.brevity \
    --accelerate_config fsdp2 \
    --per_device_train_batch_size 8 --gradient_accumulation_steps 2 \
    --num_generations 4 --num_iterations 2 --max_completion_length 512 \
    --use_vllm true --vllm_enable_sleep_mode true --output_dir out/rloo
