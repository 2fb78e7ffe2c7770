#!/usr/bin/env bash
# GRPO with Megatron, settings in groups.
set -xeuo pipefail

########################### Quick Config ###########################
TP=${TP:-2}
PP=${PP:-2}
CP=${CP:-1}
GEN_TP=${GEN_TP:-4}
ALL_OFFLOAD=${ALL_OFFLOAD:-True}
MODEL_PATH=${MODEL_PATH:-"Qwen/Qwen3-8B"}
NNODES=${NNODES:-2}

########################### Parameter Arrays ###########################
DATA=(
    data.train_files=${HOME}/data/gsm8k/train.parquet
    data.val_files=${HOME}/data/gsm8k/test.parquet
    data.train_batch_size=512     # prompts
    data.max_prompt_length=1024
    data.max_response_length=2048
    data.filter_overlong_prompts=True
)

MODEL=(
    actor_rollout_ref.model.path="$MODEL_PATH"
)

ACTOR=(
    actor_rollout_ref.actor.ppo_mini_batch_size=128
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((4 * (1024 + 2048)))
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=${TP}
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=${PP}
    actor_rollout_ref.actor.megatron.context_parallel_size=${CP}
    actor_rollout_ref.actor.megatron.param_offload=${ALL_OFFLOAD}
    actor_rollout_ref.actor.megatron.optimizer_offload=${ALL_OFFLOAD}
    +actor_rollout_ref.actor.optim.override_optimizer_config.overlap_cpu_optimizer_d2h_h2d=True
    ++actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend=fused
)

ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.tensor_model_parallel_size=${GEN_TP}
    actor_rollout_ref.rollout.gpu_memory_utilization=0.7
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
)

TRAINER=(
    trainer.logger='["console","wandb"]'
    trainer.project_name=verl_grpo_example
    trainer.experiment_name="qwen3_8b_tp${TP}_pp${PP}"
    trainer.n_gpus_per_node=8
    trainer.nnodes=${NNODES}
    trainer.save_freq=20
    trainer.total_epochs=15
)

########################### Launch ###########################
python3 -m verl.trainer.main_ppo \
    model_engine=megatron \
    algorithm.adv_estimator=grpo \
    "${DATA[@]}" \
    "${MODEL[@]}" \
    "${ACTOR[@]}" \
    "${ROLLOUT[@]}" \
    "${TRAINER[@]}" \
    "$@"
