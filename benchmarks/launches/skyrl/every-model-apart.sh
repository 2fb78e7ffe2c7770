#!/bin/bash
# Reference on GPUs of its own as well.
export NODES=${NODES:-1}
export PER_NODE=${PER_NODE:-8}

COMMON="trainer.train_batch_size=128 trainer.policy_mini_batch_size=64 trainer.critic_mini_batch_size=64"
LENGTHS="trainer.max_prompt_length=2048 generator.sampling_params.max_generate_length=6144"

uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.placement.colocate_all=false \
  trainer.placement.colocate_policy_ref=false \
  trainer.placement.policy_num_nodes=$NODES \
  trainer.placement.policy_num_gpus_per_node=$PER_NODE \
  trainer.placement.ref_num_nodes=$NODES \
  trainer.placement.ref_num_gpus_per_node=$PER_NODE \
  trainer.placement.critic_num_nodes=$NODES \
  trainer.placement.critic_num_gpus_per_node=$PER_NODE \
  generator.inference_engine.num_engines=$((NODES * PER_NODE / 4)) \
  generator.inference_engine.tensor_parallel_size=4 \
  trainer.algorithm.advantage_estimator=gae \
  trainer.policy.model.path=Qwen/Qwen2.5-32B-Instruct \
  trainer.critic.model.path=Qwen/Qwen2.5-7B-Instruct \
  trainer.policy.sequence_parallel_size=2 \
  trainer.ref.sequence_parallel_size=2 \
  trainer.policy.fsdp_config.cpu_offload=false \
  data.train_data="['$HOME/data/train.parquet']" \
  data.val_data="['$HOME/data/val.parquet']" \
  generator.n_samples_per_prompt=4 \
  trainer.micro_train_batch_size_per_gpu=1 \
  trainer.micro_forward_batch_size_per_gpu=2 \
  environment.env_class=math \
  $COMMON $LENGTHS
