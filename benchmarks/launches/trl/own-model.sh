# with: --model actor=qwen2.5-7b
# beside: zero3-config.yaml
accelerate launch --config_file zero3-config.yaml run_grpo.py \
  --model_name_or_path /mnt/checkpoints/sft-stage2/step-400 --dataset_name /mnt/d --output_dir o \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --num_generations 8 \
  --max_completion_length 1024 --use_vllm
