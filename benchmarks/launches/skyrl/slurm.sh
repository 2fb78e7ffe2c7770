#!/bin/bash
#SBATCH --job-name=skyrl
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
set -eo pipefail
NUM_NODES=${SLURM_NNODES:-4}
GPUS_PER_NODE=8
TOTAL=$((NUM_NODES * GPUS_PER_NODE))
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --nodes=1 --ntasks=1 -w "$head_node" ray start --head --port=6379 --block &
sleep 20
for i in $(seq 1 $((NUM_NODES - 1))); do
  srun --nodes=1 --ntasks=1 --exclude="$head_node" ray start --address="$head_node:6379" --block &
done
sleep 30
export RAY_ADDRESS="$head_node:6379"
python3 -m skyrl.train.entrypoints.main_base \
  trainer.strategy=megatron \
  trainer.policy.model.path=meta-llama/Llama-3.1-70B-Instruct \
  trainer.placement.policy_num_nodes=$NUM_NODES \
  trainer.placement.policy_num_gpus_per_node=$GPUS_PER_NODE \
  trainer.placement.ref_num_nodes=$NUM_NODES \
  trainer.placement.ref_num_gpus_per_node=$GPUS_PER_NODE \
  trainer.policy.megatron_config.tensor_model_parallel_size=8 \
  trainer.policy.megatron_config.pipeline_model_parallel_size=2 \
  trainer.ref.megatron_config.tensor_model_parallel_size=8 \
  trainer.ref.megatron_config.pipeline_model_parallel_size=1 \
  trainer.policy.megatron_config.transformer_config_kwargs.recompute_granularity=selective \
  trainer.policy.megatron_config.transformer_config_kwargs.recompute_modules='["core_attn"]' \
  trainer.policy.megatron_config.transformer_config_kwargs.recompute_method=null \
  trainer.policy.megatron_config.transformer_config_kwargs.recompute_num_layers=null \
  generator.inference_engine.num_engines=$((TOTAL / 8)) \
  generator.inference_engine.tensor_parallel_size=8 \
  trainer.train_batch_size=256 trainer.policy_mini_batch_size=128 \
  trainer.micro_train_batch_size_per_gpu=1 trainer.micro_forward_batch_size_per_gpu=2 \
  trainer.max_prompt_length=1024 generator.sampling_params.max_generate_length=3072 \
  generator.n_samples_per_prompt=8 \
  data.train_data="['/lustre/train.parquet']" data.val_data="['/lustre/val.parquet']" \
  environment.env_class=gsm8k
