#!/bin/bash
NUM_NODES=2
if [[ $NUM_NODES -gt 1 ]]; then
  PLACEMENT="trainer.placement.policy_num_nodes=$NUM_NODES trainer.placement.ref_num_nodes=$NUM_NODES"
else
  PLACEMENT=""
fi
GPUS=8
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base $PLACEMENT \
  trainer.placement.policy_num_gpus_per_node=$GPUS \
  trainer.placement.ref_num_gpus_per_node=$GPUS \
  generator.inference_engine.num_engines=$((NUM_NODES * GPUS)) \
  trainer.policy.model.path=google/gemma-2-9b-it \
  trainer.train_batch_size=256 trainer.policy_mini_batch_size=64 \
  trainer.micro_forward_batch_size_per_gpu=8 trainer.micro_train_batch_size_per_gpu=2 \
  trainer.max_prompt_length=1024 generator.sampling_params.max_generate_length=2048 \
  generator.n_samples_per_prompt=8 data.train_data="['/data/train.parquet']"
