#!/usr/bin/env bash
# Rollouts ahead on a node of their own; policy with reference, and the critic, on others.
set -e
python3 main_fully_async.py \
  trainer.fully_async.enabled=true \
  trainer.fully_async.max_staleness_steps=2 \
  trainer.fully_async.num_parallel_generation_workers=384 \
  trainer.algorithm.advantage_estimator=gae \
  trainer.algorithm.policy_loss_type=dppo \
  trainer.policy.model.path=Qwen/Qwen2.5-7B-Instruct \
  trainer.critic.model.path=Qwen/Qwen2.5-7B-Instruct \
  trainer.placement.colocate_all=false \
  trainer.placement.policy_num_gpus_per_node=8 \
  trainer.placement.ref_num_gpus_per_node=8 \
  trainer.placement.critic_num_gpus_per_node=8 \
  generator.inference_engine.num_engines=8 \
  trainer.train_batch_size=256 trainer.policy_mini_batch_size=256 trainer.critic_mini_batch_size=256 \
  trainer.micro_train_batch_size_per_gpu=4 trainer.micro_forward_batch_size_per_gpu=8 \
  trainer.max_prompt_length=1024 generator.sampling_params.max_generate_length=4096 \
  generator.n_samples_per_prompt=1 environment.env_class=gsm8k \
  data.train_data="['/data/train.parquet']"
