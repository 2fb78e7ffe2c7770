#!/bin/bash
docker run --rm --gpus all --shm-size=64g -v /data:/data my/skyrl:latest bash -c '
  cd /workspace/SkyRL &&
  uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
    trainer.policy.model.path=/data/models/Qwen2.5-7B-Instruct \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.placement.ref_num_gpus_per_node=8 \
    generator.inference_engine.num_engines=4 \
    generator.inference_engine.tensor_parallel_size=2 \
    trainer.train_batch_size=128 trainer.policy_mini_batch_size=64 \
    trainer.micro_forward_batch_size_per_gpu=8 trainer.micro_train_batch_size_per_gpu=4 \
    trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1536 \
    generator.n_samples_per_prompt=8 data.train_data=[/data/train.parquet]
'
