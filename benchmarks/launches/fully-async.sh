#!/usr/bin/env bash
NNODES_ROLLOUT=${NNODES_ROLLOUT:-1}
NNODES_TRAIN=${NNODES_TRAIN:-1}
staleness_threshold=0.5
sync_step=4
fit=(
  async_training.staleness_threshold="${staleness_threshold}"
  async_training.trigger_parameter_sync_step=$sync_step
  async_training.require_batches=1
  async_training.partial_rollout=True
  rollout.nnodes=$NNODES_ROLLOUT rollout.n_gpus_per_node=8
  rollout.total_rollout_steps=$((512 * 100))
)
python -m verl.experimental.fully_async_policy.fully_async_main \
  data.train_batch_size=0 data.gen_batch_size=1 \
  data.max_prompt_length=2048 data.max_response_length=8192 \
  algorithm.adv_estimator=grpo \
  actor_rollout_ref.hybrid_engine=False \
  actor_rollout_ref.model.path=Qwen/Qwen2.5-Math-7B \
  actor_rollout_ref.actor.strategy=fsdp2 \
  actor_rollout_ref.actor.ppo_mini_batch_size=32 \
  actor_rollout_ref.actor.use_dynamic_bsz=True \
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=10240 \
  actor_rollout_ref.actor.use_rollout_log_probs=True \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=16 \
  actor_rollout_ref.rollout.calculate_log_probs=True \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.8 \
  trainer.nnodes="${NNODES_TRAIN}" trainer.n_gpus_per_node=8 \
  "${fit[@]}"
