#!/bin/bash
# Submitted to a cluster that Ray runs already.
RUNTIME_ENV='{"working_dir": ".", "excludes": [".git"]}'
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json="$RUNTIME_ENV" -- \
  uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
    trainer.placement.policy_num_nodes=2 \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.placement.ref_num_nodes=2 \
    trainer.placement.ref_num_gpus_per_node=8 \
    generator.inference_engine.num_engines=4 \
    generator.inference_engine.tensor_parallel_size=4 \
    trainer.policy.model.path=Qwen/Qwen2.5-14B-Instruct \
    trainer.algorithm.advantage_estimator=rloo \
    trainer.algorithm.use_kl_in_reward=true trainer.algorithm.use_kl_loss=false \
    trainer.train_batch_size=256 trainer.policy_mini_batch_size=256 \
    trainer.micro_train_batch_size_per_gpu=2 trainer.micro_forward_batch_size_per_gpu=8 \
    trainer.max_prompt_length=1024 generator.sampling_params.max_generate_length=4096 \
    generator.n_samples_per_prompt=8 \
    "data.train_data=['/shared/train.parquet']" "data.val_data=['/shared/val.parquet']" \
    environment.env_class=gsm8k trainer.max_training_steps=300
