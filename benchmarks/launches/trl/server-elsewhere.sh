# The server is started by another script.
# beside: zero3-config.yaml
# with: --set vllm-serve.tensor-parallel-size=4
accelerate launch --config_file zero3-config.yaml grpo.py \
  --model_name_or_path Qwen/Qwen2.5-7B --dataset_name d --output_dir o \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --num_generations 8 \
  --max_completion_length 2048 --use_vllm --vllm_mode server --vllm_server_host gen-node
