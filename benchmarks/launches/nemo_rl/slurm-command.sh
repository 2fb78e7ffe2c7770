#!/bin/bash
# Through the framework's own script for Slurm, which runs COMMAND on the head.
# beside: async-two-nodes.yaml
NUM_ACTOR_NODES=2
COMMAND="uv run ./examples/run_grpo.py --config examples/configs/recipes/async-two-nodes.yaml cluster.num_nodes=$NUM_ACTOR_NODES grpo.num_prompts_per_step=128 policy.train_global_batch_size=1024" \
CONTAINER=/images/nemo-rl.sqsh \
MOUNTS="$PWD:$PWD" \
sbatch \
    --nodes=${NUM_ACTOR_NODES} \
    --account=team \
    --job-name=async \
    --partition=batch \
    --time=4:0:0 \
    --gres=gpu:8 \
    ray.sub
