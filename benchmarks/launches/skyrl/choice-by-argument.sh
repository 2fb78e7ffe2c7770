#!/usr/bin/env bash
SIZE=${1:-7b}
case "$SIZE" in
  1.5b) MODEL=Qwen/Qwen2.5-1.5B-Instruct; TP=1 ;;
  7b) MODEL=Qwen/Qwen2.5-7B-Instruct; TP=2 ;;
  *) echo "unknown size" >&2; exit 1 ;;
esac
GPUS=8
EXTRA=""
if [ "$TP" -gt 1 ]; then
  EXTRA="generator.inference_engine.enforce_eager=false"
fi
uv run --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.policy.model.path=$MODEL \
  trainer.placement.policy_num_gpus_per_node=$GPUS \
  trainer.placement.ref_num_gpus_per_node=$GPUS \
  generator.inference_engine.num_engines=$((GPUS / TP)) \
  generator.inference_engine.tensor_parallel_size=$TP \
  trainer.algorithm.advantage_estimator=reinforce++ \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=128 \
  trainer.micro_train_batch_size_per_gpu=8 trainer.micro_forward_batch_size_per_gpu=16 \
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=2048 \
  generator.n_samples_per_prompt=8 \
  data.train_data="['data/train.parquet']" data.val_data="['data/val.parquet']" \
  $EXTRA
