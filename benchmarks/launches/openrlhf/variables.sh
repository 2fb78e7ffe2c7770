#!/usr/bin/env bash
set -euo pipefail
REF_NUM_NODES="${REF_NUM_NODES:-1}"
REF_NUM_GPUS_PER_NODE="${REF_NUM_GPUS_PER_NODE:-8}"
ACTOR_NUM_NODES="${ACTOR_NUM_NODES:-1}"
ACTOR_NUM_GPUS_PER_NODE="${ACTOR_NUM_GPUS_PER_NODE:-8}"
VLLM_NUM_ENGINES="${VLLM_NUM_ENGINES:-4}"
VLLM_TENSOR_PARALLEL_SIZE="${VLLM_TENSOR_PARALLEL_SIZE:-2}"
VLLM_GPU_MEMORY_UTILIZATION="${VLLM_GPU_MEMORY_UTILIZATION:-0.6}"
VLLM_SYNC_BACKEND="${VLLM_SYNC_BACKEND:-nccl}"
ACTOR_MODEL_NAME_OR_PATH="${ACTOR_MODEL_NAME_OR_PATH:-Qwen/Qwen2.5-7B-Instruct}"
REWARD_REMOTE_URL="${REWARD_REMOTE_URL:-./reward.py}"
TRAIN_BATCH_SIZE="${TRAIN_BATCH_SIZE:-128}"
TRAIN_MICRO_BATCH_SIZE="${TRAIN_MICRO_BATCH_SIZE:-4}"
ROLLOUT_BATCH_SIZE="${ROLLOUT_BATCH_SIZE:-128}"
ROLLOUT_MICRO_BATCH_SIZE="${ROLLOUT_MICRO_BATCH_SIZE:-8}"
ROLLOUT_N_SAMPLES_PER_PROMPT="${ROLLOUT_N_SAMPLES_PER_PROMPT:-8}"
DATA_MAX_LEN="${DATA_MAX_LEN:-4096}"
ROLLOUT_MAX_NEW_TOKENS="${ROLLOUT_MAX_NEW_TOKENS:-3072}"
DATA_MAX_SAMPLES="${DATA_MAX_SAMPLES:-100000}"
TRAIN_MAX_EPOCHS="${TRAIN_MAX_EPOCHS:-1}"
TRAIN_NUM_EPISODES="${TRAIN_NUM_EPISODES:-1}"
DS_ZERO_STAGE="${DS_ZERO_STAGE:-3}"
DS_PARAM_DTYPE="${DS_PARAM_DTYPE:-bf16}"
ACTOR_ADAM_LR="${ACTOR_ADAM_LR:-5e-7}"
ALGO_KL_INIT_COEF="${ALGO_KL_INIT_COEF:-0.001}"
ALGO_KL_ESTIMATOR="${ALGO_KL_ESTIMATOR:-k3}"
ALGO_ADVANTAGE_ESTIMATOR="${ALGO_ADVANTAGE_ESTIMATOR:-group_norm}"
DATA_PROMPT_DATASET="${DATA_PROMPT_DATASET:-/data/prompts.jsonl}"
DATA_INPUT_KEY="${DATA_INPUT_KEY:-prompt}"
DATA_LABEL_KEY="${DATA_LABEL_KEY:-answer}"
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/workspace"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref.num_nodes "${REF_NUM_NODES}" \
   --ref.num_gpus_per_node "${REF_NUM_GPUS_PER_NODE}" \
   --actor.num_nodes "${ACTOR_NUM_NODES}" \
   --actor.num_gpus_per_node "${ACTOR_NUM_GPUS_PER_NODE}" \
   --vllm.num_engines "${VLLM_NUM_ENGINES}" \
   --vllm.tensor_parallel_size "${VLLM_TENSOR_PARALLEL_SIZE}" \
   --vllm.gpu_memory_utilization "${VLLM_GPU_MEMORY_UTILIZATION}" \
   --vllm.sync_backend "${VLLM_SYNC_BACKEND}" \
   --actor.model_name_or_path "${ACTOR_MODEL_NAME_OR_PATH}" \
   --reward.remote_url "${REWARD_REMOTE_URL}" \
   --train.batch_size "${TRAIN_BATCH_SIZE}" \
   --train.micro_batch_size "${TRAIN_MICRO_BATCH_SIZE}" \
   --rollout.batch_size "${ROLLOUT_BATCH_SIZE}" \
   --rollout.micro_batch_size "${ROLLOUT_MICRO_BATCH_SIZE}" \
   --rollout.n_samples_per_prompt "${ROLLOUT_N_SAMPLES_PER_PROMPT}" \
   --data.max_len "${DATA_MAX_LEN}" \
   --rollout.max_new_tokens "${ROLLOUT_MAX_NEW_TOKENS}" \
   --data.max_samples "${DATA_MAX_SAMPLES}" \
   --train.max_epochs "${TRAIN_MAX_EPOCHS}" \
   --train.num_episodes "${TRAIN_NUM_EPISODES}" \
   --ds.zero_stage "${DS_ZERO_STAGE}" \
   --ds.param_dtype "${DS_PARAM_DTYPE}" \
   --ds.packing_samples \
   --actor.gradient_checkpointing_enable \
   --actor.adam.lr "${ACTOR_ADAM_LR}" \
   --algo.kl.init_coef "${ALGO_KL_INIT_COEF}" \
   --algo.kl.use_loss \
   --algo.kl.estimator "${ALGO_KL_ESTIMATOR}" \
   --algo.advantage.estimator "${ALGO_ADVANTAGE_ESTIMATOR}" \
   --data.prompt_dataset "${DATA_PROMPT_DATASET}" \
   --data.input_key "${DATA_INPUT_KEY}" \
   --data.label_key "${DATA_LABEL_KEY}" \
   --data.apply_chat_template \
   --train.colocate_all \
   --vllm.enable_sleep \
   --ds.enable_sleep \
   "$@"
