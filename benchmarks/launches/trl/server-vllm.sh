#!/usr/bin/env bash
set -euo pipefail
MODEL=Qwen/Qwen3-14B
ARGS=(
  --model_name_or_path "$MODEL"
  --dataset_name my-org/prompts
  --reward_funcs rewards.exact
  --per_device_train_batch_size 4
  --gradient_accumulation_steps 16
  --num_generations 8
  --max_completion_length 6144
  --use_vllm
  --vllm_mode server
  --vllm_server_base_url http://127.0.0.1:8000
  --beta 0.001
  --output_dir out
)
export VLLM_SERVER_DEV_MODE=1
CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve $MODEL --tensor-parallel-size 2 --data-parallel-size 2 \
  --max-model-len 8192 --weight-transfer-config '{"backend": "nccl"}' \
  --logprobs-mode processed_logprobs --max-logprobs -1 --kv-cache-memory-bytes 30000000000 &
CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --config_file deepspeed_zero3.yaml \
  --num_processes 4 -m trl.scripts.grpo "${ARGS[@]}"
