uv run --with trl==1.16.0 accelerate launch --num_processes 1 -m trl.scripts.grpo \
  --model_name_or_path Qwen/Qwen3-1.7B --dataset_name d --reward_funcs accuracy_reward \
  --output_dir o --per_device_train_batch_size 8 --gradient_accumulation_steps 8 \
  --num_generations 8 --max_completion_length 2048 --use_vllm --vllm_gpu_memory_utilization 0.2
