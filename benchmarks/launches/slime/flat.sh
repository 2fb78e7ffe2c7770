#!/usr/bin/env bash
# every argument on the command, and Megatron's folder in the environment
export CUDA_DEVICE_MAX_CONNECTIONS=1
PYTHONPATH=/data/Megatron-LM python train.py --actor-num-nodes=1 --actor-num-gpus-per-node=8 --colocate \
  --hf-checkpoint=/models/Qwen3-8B --ref-load=/models/Qwen3-8B_torch_dist --prompt-data=/data/p.jsonl \
  --rollout-batch-size=$((4 * 16)) --n-samples-per-prompt=8 --global-batch-size=512 --num-rollout=200 \
  --rollout-max-prompt-len=1024 --rollout-max-response-len=4096 --advantage-estimator=grpo \
  --tensor-model-parallel-size=4 --sequence-parallel --use-dynamic-batch-size --max-tokens-per-gpu=8192 \
  --rollout-num-gpus-per-engine=2 --sglang-mem-fraction-static=0.7 --lr=1e-6 "$@"
