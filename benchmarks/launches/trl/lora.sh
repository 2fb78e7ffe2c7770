accelerate launch --num_processes 2 --mixed_precision bf16 --multi_gpu -m trl.scripts.grpo \
  --model_name_or_path meta-llama/Llama-3.1-8B-Instruct \
  --dataset_name d --reward_funcs think_format_reward --output_dir o \
  --use_peft --lora_r 32 --lora_alpha 64 --lora_target_modules q_proj k_proj v_proj o_proj \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 4 --num_generations 8 \
  --max_completion_length 1024 --use_vllm --beta 0.01
