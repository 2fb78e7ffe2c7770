#!/bin/bash
# with: --job 1
# The same run under several seeds.
for seed in 1 2 3; do
  python -m skyrl.train.entrypoints.main_base \
    trainer.seed=$seed \
    trainer.run_name=seed-$seed \
    trainer.policy.model.path=Qwen/Qwen2.5-3B-Instruct \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.placement.ref_num_gpus_per_node=8 \
    generator.inference_engine.num_engines=8 \
    trainer.train_batch_size=256 trainer.policy_mini_batch_size=64 \
    trainer.micro_train_batch_size_per_gpu=4 trainer.micro_forward_batch_size_per_gpu=8 \
    generator.sampling_params.max_generate_length=2048 \
    environment.env_class=gsm8k \
    data.train_data="['train.parquet']"
done
