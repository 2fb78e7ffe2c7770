#!/bin/bash
# with: --set MODEL=Qwen/Qwen2.5-7B-Instruct
set -u
: "${GPUS:=8}"
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.policy.model.path="$MODEL" \
  trainer.placement.policy_num_gpus_per_node=$GPUS \
  trainer.placement.ref_num_gpus_per_node=$GPUS \
  generator.inference_engine.num_engines=$GPUS \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=64 \
  trainer.micro_train_batch_size_per_gpu=4 trainer.micro_forward_batch_size_per_gpu=4 \
  generator.n_samples_per_prompt=8 \
  data.train_data="['$HOME/data/train.parquet']"
