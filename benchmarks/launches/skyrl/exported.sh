#!/bin/bash
export MODEL_PATH="${MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}"
export TRAIN_BS="${TRAIN_BS:-512}"
export MINI_BS="${MINI_BS:-128}"
export N="${N:-8}"
export NNODES="${NNODES:-2}"
export TP="${TP:-2}"
export ENGINES=$(( NNODES * 8 / TP ))
[[ -n "${DEBUG:-}" ]] && set -x
uv run --isolated --extra fsdp --with wandb -m skyrl.train.entrypoints.main_base \
    trainer.policy.model.path="${MODEL_PATH}" \
    trainer.placement.policy_num_nodes="${NNODES}" \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.placement.ref_num_nodes="${NNODES}" \
    trainer.placement.ref_num_gpus_per_node=8 \
    generator.inference_engine.num_engines="${ENGINES}" \
    generator.inference_engine.tensor_parallel_size="${TP}" \
    trainer.train_batch_size="${TRAIN_BS}" \
    trainer.policy_mini_batch_size="${MINI_BS}" \
    trainer.micro_train_batch_size_per_gpu=4 \
    trainer.micro_forward_batch_size_per_gpu=8 \
    trainer.max_prompt_length=1024 \
    generator.max_input_length=1024 \
    generator.sampling_params.max_generate_length=3072 \
    generator.n_samples_per_prompt="${N}" \
    trainer.algorithm.advantage_estimator=maxrl \
    "data.train_data=['${HOME}/data/train.parquet']" \
    "data.val_data=['${HOME}/data/val.parquet']" \
    environment.env_class=gsm8k \
    trainer.run_name="$(basename "$MODEL_PATH")-$(date +%m%d)"
