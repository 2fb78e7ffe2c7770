#!/usr/bin/env bash
# Nothing is shared but policy and reference: eight GPUs for each of three groups.
set -euo pipefail
POLICY=8
CRITIC=8
ENGINES=4
ENGINE_TP=2

args=(
  data.train_data="['/data/math/train.parquet']"
  data.val_data="['/data/math/val.parquet']"
  trainer.algorithm.advantage_estimator=gae
  trainer.policy.model.path=meta-llama/Llama-3.1-8B-Instruct
  trainer.critic.model.path=meta-llama/Llama-3.1-8B-Instruct
  trainer.placement.colocate_all=false
  trainer.placement.colocate_policy_ref=true
  trainer.placement.policy_num_gpus_per_node=${POLICY}
  trainer.placement.ref_num_gpus_per_node=${POLICY}
  trainer.placement.critic_num_gpus_per_node=${CRITIC}
  generator.inference_engine.num_engines=${ENGINES}
  generator.inference_engine.tensor_parallel_size=${ENGINE_TP}
  generator.inference_engine.gpu_memory_utilization=0.9
  trainer.train_batch_size=256
  trainer.policy_mini_batch_size=256
  trainer.critic_mini_batch_size=256
  trainer.micro_train_batch_size_per_gpu=2
  trainer.micro_forward_batch_size_per_gpu=8
  trainer.max_prompt_length=1024
  generator.sampling_params.max_generate_length=3072
  generator.n_samples_per_prompt=1
  environment.env_class=aime
  trainer.max_training_steps=400
)
python -m skyrl.train.entrypoints.main_base "${args[@]}" "$@"
