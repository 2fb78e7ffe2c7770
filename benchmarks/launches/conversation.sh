#!/usr/bin/env bash
# A conversation with a tool; the configuration is of the framework's examples.
# with: --file gsm8k_multiturn_grpo.yaml
PROJECT_DIR="$(pwd)"
CONFIG_PATH="$PROJECT_DIR/examples/sglang_multiturn/config"
python3 -m verl.trainer.main_ppo \
  --config-path="$CONFIG_PATH" --config-name='gsm8k_multiturn_grpo' \
  algorithm.adv_estimator=grpo data.train_batch_size=256 \
  data.max_prompt_length=1024 data.max_response_length=1024 \
  actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct \
  actor_rollout_ref.actor.ppo_mini_batch_size=256 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \
  actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.n=16 \
  trainer.n_gpus_per_node=8 trainer.nnodes=1
