#!/usr/bin/env bash
# What the scheduler knows, with values where it says nothing.
GPUS=${SLURM_GPUS_ON_NODE:-8}
OVERRIDES=(
  policy.model_name=Qwen/Qwen2.5-7B-Instruct
  policy.max_total_sequence_length=4096
  policy.dtensor_cfg.activation_checkpointing=true
  cluster.gpus_per_node="$GPUS"
  cluster.num_nodes="${NNODES:-2}"
)
if [ "${ENGINE:-dtensor}" = megatron ]; then
  OVERRIDES+=(policy.dtensor_cfg.enabled=false policy.megatron_cfg.enabled=true)
fi
uv run --extra mcore examples/run_grpo.py --config=examples/configs/grpo_math_1B.yaml "${OVERRIDES[@]}"
