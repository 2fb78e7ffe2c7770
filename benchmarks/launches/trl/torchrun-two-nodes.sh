#!/usr/bin/env bash
# Run on both nodes with RANK and MASTER_ADDR set.
torchrun --nproc-per-node 8 --nnodes 2 --node-rank "$RANK" --master-addr "$MASTER_ADDR" \
    --master-port 29501 train_grpo.py --deepspeed zero2.json \
    --model_name_or_path Qwen/Qwen3-8B --dataset_name d --reward_funcs accuracy_reward \
    --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --num_generations 8 \
    --max_completion_length 8192 --use_vllm --vllm_mode colocate --vllm_max_model_length 10240 \
    --output_dir out
