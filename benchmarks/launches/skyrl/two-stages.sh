#!/bin/bash
# with: --job 2
# Eight thousand tokens first, and then sixteen, from the checkpoint of the first.
common=(
  trainer.policy.model.path=deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B
  trainer.placement.policy_num_gpus_per_node=8
  trainer.placement.ref_num_gpus_per_node=8
  generator.inference_engine.num_engines=8
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=64
  trainer.micro_train_batch_size_per_gpu=2 trainer.micro_forward_batch_size_per_gpu=4
  trainer.max_prompt_length=1024
  generator.n_samples_per_prompt=8
  environment.env_class=aime
  "data.train_data=['/data/deepscaler.parquet']"
)
uv run --extra fsdp -m skyrl.train.entrypoints.main_base "${common[@]}" \
  generator.sampling_params.max_generate_length=8192 trainer.max_training_steps=500
uv run --extra fsdp -m skyrl.train.entrypoints.main_base "${common[@]}" \
  generator.sampling_params.max_generate_length=16384 trainer.max_training_steps=300
