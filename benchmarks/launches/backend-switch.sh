#!/usr/bin/env bash
BACKEND=${BACKEND:-megatron}     # fsdp | megatron
SIZE=${1:-8b}
DEVICE=${DEVICE:-cuda}

case "$SIZE" in
  8b)  MODEL_ID=Qwen/Qwen3-8B;  TP=2; PP=1 ;;
  14b) MODEL_ID=Qwen/Qwen3-14B; TP=4; PP=1 ;;
  *)   echo "unknown size $SIZE" >&2; exit 1 ;;
esac

if [ "$DEVICE" = "npu" ]; then
  EXTRA_DEVICE=(trainer.device=npu)
else
  EXTRA_DEVICE=()
fi

if [[ "$BACKEND" == "megatron" ]]; then
  TRAIN=(
    model_engine=megatron
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=$TP
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=$PP
  )
elif [[ "$BACKEND" == "fsdp" ]]; then
  TRAIN=(
    actor_rollout_ref.actor.strategy=fsdp2
    actor_rollout_ref.actor.fsdp_config.param_offload=False
  )
else
  echo "unknown backend"; exit 1
fi

python3 -m verl.trainer.main_ppo \
  "${TRAIN[@]}" ${EXTRA_DEVICE[@]+"${EXTRA_DEVICE[@]}"} \
  algorithm.adv_estimator=grpo \
  data.train_batch_size=128 data.max_prompt_length=512 data.max_response_length=2048 \
  actor_rollout_ref.model.path=$MODEL_ID \
  actor_rollout_ref.actor.ppo_mini_batch_size=128 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5 actor_rollout_ref.rollout.n=8 \
  trainer.experiment_name=$(basename ${MODEL_ID})-$(date +%m%d) \
  trainer.n_gpus_per_node=8 trainer.nnodes=1 ${@:2}
