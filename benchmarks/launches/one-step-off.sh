#!/usr/bin/env bash
# One node: two GPUs generate a step ahead of the six that train.
set -x
NUM_GPUS=${NUM_GPUS:-8}
n_gpus_rollout=2
n_gpus_training=$((NUM_GPUS - n_gpus_rollout))
python3 -m verl.experimental.one_step_off_policy.main_ppo \
    --config-name='one_step_off_ppo_trainer.yaml' \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.hybrid_engine=False \
    data.train_batch_size=1152 data.max_prompt_length=512 data.max_response_length=1024 \
    actor_rollout_ref.model.path="${HOME}/models/Qwen2.5-3B-Instruct" \
    actor_rollout_ref.actor.strategy=fsdp2 critic.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=192 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.fsdp_config.param_offload=False \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=32 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=5 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
    trainer.nnodes=1 trainer.n_gpus_per_node="${n_gpus_training}" \
    rollout.nnodes=1 rollout.n_gpus_per_node="${n_gpus_rollout}" \
    trainer.total_epochs=2 trainer.test_freq=5 trainer.save_freq=-1 "$@"
