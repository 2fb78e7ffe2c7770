#!/usr/bin/env bash
# The framework's own configuration, and all else on the command line.
set -eou pipefail

NUM_NODES=${NUM_NODES:-1}
MODEL=Qwen/Qwen2.5-7B
cd "$(dirname "$0")/.."

uv run examples/run_grpo.py \
    --config examples/configs/grpo_math_1B.yaml \
    policy.model_name="$MODEL" \
    policy.max_total_sequence_length=4096 \
    policy.dtensor_cfg.tensor_parallel_size=4 \
    policy.train_micro_batch_size=2 policy.logprob_batch_size=2 \
    cluster.gpus_per_node=8 cluster.num_nodes=$NUM_NODES \
    grpo.max_num_steps=$((20 * 5)) \
    logger.wandb_enabled=True logger.wandb.name="7b-$(date +%s)" \
    ++policy.generation.vllm_kwargs.max_num_seqs=256 \
    "$@"
