#!/usr/bin/env bash
set -euo pipefail
TRAIN_NODES=${TRAIN_NODES:-1}
ROLLOUT_NODES=${ROLLOUT_NODES:-1}
mini=${MINI:-128}
steps=4

async=(
  trainer.v1.trainer_mode=separate_async
  trainer.v1.separate_async.num_warmup_batches=1
  trainer.v1.separate_async.parameter_sync_step=$steps
  actor_rollout_ref.hybrid_engine=False
  actor_rollout_ref.rollout.nnodes=$ROLLOUT_NODES
  actor_rollout_ref.rollout.n_gpus_per_node=8
  actor_rollout_ref.rollout.checkpoint_engine.backend=nccl
)
common=(
  algorithm.adv_estimator=grpo
  data.train_batch_size=$((mini * steps))
  data.max_prompt_length=1024
  data.max_response_length=4096
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct
  actor_rollout_ref.actor.ppo_mini_batch_size=$mini
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.n=8
  actor_rollout_ref.rollout.max_num_seqs=512
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.85
  trainer.nnodes=$TRAIN_NODES
  trainer.n_gpus_per_node=8
)
python3 -m verl.trainer.main_ppo "${common[@]}" "${async[@]}" "${@}"
