# beside: train_parsed.py
accelerate launch --num_processes 8 --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy \
  TRANSFORMER_BASED_WRAP --fsdp_reshard_after_forward true --mixed_precision bf16 train_parsed.py \
  --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name d --output_dir o \
  --per_device_train_batch_size 16 --num_generations 8 --max_completion_length 512 \
  --no_gradient_checkpointing
