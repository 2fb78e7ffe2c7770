#!/usr/bin/env bash
# Micro-batches of tokens, a cache of bytes, and an old name for packing.
set -xeuo pipefail
KV_GIB=30
python -u -m skyrl.train.entrypoints.main_base \
    trainer.policy.model.path=Qwen/Qwen3-14B \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.placement.ref_num_gpus_per_node=8 \
    trainer.use_sample_packing=true \
    trainer.max_tokens_per_microbatch=$((1024 * 20)) \
    trainer.policy.sequence_parallel_size=2 \
    trainer.ref.sequence_parallel_size=2 \
    generator.inference_engine.num_engines=2 \
    generator.inference_engine.tensor_parallel_size=4 \
    generator.inference_engine.max_num_seqs=256 \
    generator.inference_engine.max_num_batched_tokens=16384 \
    generator.inference_engine.engine_init_kwargs.kv_cache_memory_bytes=$((KV_GIB * 1024 ** 3)) \
    generator.inference_engine.engine_init_kwargs.max_model_len=18432 \
    trainer.train_batch_size=64 trainer.policy_mini_batch_size=32 \
    trainer.max_prompt_length=2048 generator.sampling_params.max_generate_length=16384 \
    generator.n_samples_per_prompt=16 \
    trainer.algorithm.policy_loss_type=gspo trainer.algorithm.loss_reduction=sequence_mean \
    trainer.algorithm.off_policy_correction.tis_ratio_type=token \
    data.train_data="['/data/train.parquet','/data/more.parquet']" \
    environment.env_class=aime 2>&1 | tee run.log
