trl grpo \
  --model_name_or_path Qwen/Qwen2.5-7B \
  --dataset_name my-org/math \
  --reward_funcs accuracy_reward \
  --accelerate_config zero3 --num_processes 8 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 8 \
  --num_generations 16 --max_completion_length 3072 --vllm_max_model_length 4096 \
  --use_vllm --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 \
  --beta 0.04 --learning_rate 1e-6 --output_dir out/cli
