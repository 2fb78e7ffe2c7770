#!/usr/bin/env bash
# beside: qwen-7b-megatron.yaml
set -euo pipefail
SCRIPT_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CONFIG=$SCRIPT_DIR/qwen-7b-megatron.yaml
STEPS=100

uv run examples/run_grpo.py --config "$CONFIG" \
    grpo.max_num_steps=$STEPS \
    checkpointing.enabled=False \
    policy.megatron_cfg.pipeline_model_parallel_size=1
