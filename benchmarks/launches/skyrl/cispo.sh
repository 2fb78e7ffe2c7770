#!/usr/bin/env bash
set -euo pipefail
POLICY_LOSS="cispo"
CISPO_EPS_CLIP_LOW=0
CISPO_EPS_CLIP_HIGH=5
USE_KL_LOSS=false
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  data.train_data="['$HOME/data/gsm8k/train.parquet']" \
  data.val_data="['$HOME/data/gsm8k/validation.parquet']" \
  trainer.policy.model.path="Qwen/Qwen2.5-1.5B-Instruct" \
  trainer.placement.policy_num_gpus_per_node=4 \
  generator.inference_engine.num_engines=2 \
  generator.inference_engine.tensor_parallel_size=2 \
  trainer.algorithm.policy_loss_type="$POLICY_LOSS" \
  trainer.algorithm.cispo.cispo_eps_clip_low=$CISPO_EPS_CLIP_LOW \
  trainer.algorithm.cispo.cispo_eps_clip_high=$CISPO_EPS_CLIP_HIGH \
  trainer.algorithm.use_kl_loss=$USE_KL_LOSS \
  trainer.train_batch_size=512 trainer.policy_mini_batch_size=128 \
  trainer.micro_forward_batch_size_per_gpu=32 trainer.micro_train_batch_size_per_gpu=32 \
  generator.n_samples_per_prompt=4 \
  trainer.ckpt_path="$HOME/ckpts" "$@"
