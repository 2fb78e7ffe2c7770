#!/usr/bin/env bash
set -euo pipefail
log() { echo "[$(date)] $*" >&2; }
train() {
  local algorithm=$1
  shift
  python3 -m verl.trainer.main_ppo algorithm.adv_estimator=$algorithm \
    data.train_batch_size=128 data.max_prompt_length=256 data.max_response_length=768 \
    actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
    trainer.nnodes=1 trainer.logger=console "$@"
}
log starting
train reinforce_plus_plus actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=2
