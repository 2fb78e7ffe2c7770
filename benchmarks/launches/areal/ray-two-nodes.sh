# beside: small.yaml
#!/usr/bin/env bash
set -euo pipefail
NNODES=${NNODES:-2}
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct}
uv run python3 examples/math/gsm8k_rl.py --config=examples/math/small.yaml \
    scheduler.type=ray \
    experiment_name=qwen-7b trial_name=$(date +%m%d) \
    cluster.n_nodes="$NNODES" cluster.n_gpus_per_node=8 \
    actor.path="$MODEL" \
    actor.backend=fsdp:d8 rollout.backend=sglang:d4t2 \
    actor.mb_spec.max_tokens_per_mb=16384 \
    train_dataset.batch_size=128
