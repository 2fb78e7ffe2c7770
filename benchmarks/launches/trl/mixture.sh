# beside: fsdp-config.yaml
accelerate launch --config_file fsdp-config.yaml --machine_rank ${NODE_RANK:-0} \
  --main_process_ip ${MASTER:-node0} -m trl.scripts.grpo \
  --model_name_or_path Qwen/Qwen3-30B-A3B --dataset_name d --reward_funcs accuracy_reward \
  --output_dir o --per_device_train_batch_size 1 --gradient_accumulation_steps 16 \
  --num_generations 8 --max_completion_length 4096 --vllm_max_model_length 6144 --use_vllm \
  --vllm_tensor_parallel_size 4 --vllm_gpu_memory_utilization 0.35 --vllm_enable_sleep_mode \
  --router_aux_loss_coef 0.0
