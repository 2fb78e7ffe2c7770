#!/usr/bin/env bash
NODES=${NODES:-1}
GPUS=8
TP=2
ENGINES=$((NODES * GPUS / TP))
N=8
PROMPTS=$((1024 / N))
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/workspace"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes $NODES \
   --ref.num_gpus_per_node $GPUS \
   --actor.num_nodes $NODES \
   --actor.num_gpus_per_node $GPUS \
   --vllm.num_engines $ENGINES \
   --vllm.tensor_parallel_size $TP \
   --vllm.gpu_memory_utilization 0.6 \
   --vllm.sync_backend nccl \
   --actor.model_name_or_path Qwen/Qwen2.5-7B-Instruct \
   --reward.remote_url ./reward.py \
   --train.batch_size 128 \
   --train.micro_batch_size 4 \
   --rollout.batch_size $PROMPTS \
   --rollout.micro_batch_size 8 \
   --rollout.n_samples_per_prompt $N \
   --data.max_len 4096 \
   --rollout.max_new_tokens 3072 \
   --data.max_samples 100000 \
   --train.max_epochs 1 \
   --train.num_episodes 1 \
   --ds.zero_stage 3 \
   --ds.param_dtype bf16 \
   --ds.packing_samples \
   --actor.gradient_checkpointing_enable \
   --actor.adam.lr 5e-7 \
   --algo.kl.init_coef 0.001 \
   --algo.kl.use_loss \
   --algo.kl.estimator k3 \
   --algo.advantage.estimator group_norm \
   --data.prompt_dataset /data/prompts.jsonl \
   --data.input_key prompt \
   --data.label_key answer \
   --data.apply_chat_template \
   --train.colocate_all \
   --vllm.enable_sleep \
   --ds.enable_sleep
