#!/usr/bin/env bash
# hybridflow-ppo-7b: a plan of Automap for verl@0.9.1, 139.3 s per iteration (115.5 to 169.2 s).
# verl@0.9.1 is released with vLLM 0.24 or SGLang 0.5.12, transformers 5.5 to 5.10, Python below
# 3.13.
#
# Run it on each of 2 nodes, with NODE_RANK=0 to 1 and HEAD_ADDRESS the address of node 0; under
# Slurm in one srun with a task per node, which knows the rank.
#
# What the prediction assumes, and verl may do otherwise:
# - seconds are those of a trainer that reshards without a pause; verl also loads and frees its
#   engine's memory around every generation
# - what is trained is verl's own loss with its own coefficients and learning rates: none of them is
#   set here
# - under FSDP verl keeps its weights in 32 bits and the reference on the host, from where its
#   layers stream while it scores
# - prompts are prefilled once per response; verl shares the cache of equal prompts
# - rewards are scored in verl's reward loop, which begins while responses are still generated
# - nothing is validated: verl's validation runs and their time are switched off
# - what it trains is saved only where workload.checkpoint_every_iterations is given: without it no
#   checkpoint is written, nor one at the end
# - pools.a100: inter_node_bytes_per_second is not given; 25 GB/s per GPU, as dgx-a100-80gb has, is
#   assumed. At a quarter of that the same plan takes 144 s instead of 139.3 s
# - search.target: 1.89 s in which the driver of verl hands padded batches to the calls of an
#   iteration count, as iterations of its releases were measured; what it takes here may be a
#   multiple or a part
# How far off it is (LOG is the JSON lines that its file logger writes, where VERL_FILE_LOGGER_PATH
# says):
#   automap calibrate LOG --format verl --plan PLAN.json --output FOLDER
set -euo pipefail

# Given from outside, or here; without them nothing starts.
# folder of the reward: llama-2-7b
REWARD_MODEL=${REWARD_MODEL:-FILL_IN}
# folder of the actor: llama-2-7b
ACTOR_MODEL=${ACTOR_MODEL:-FILL_IN}
# folder of the critic: llama-2-7b
CRITIC_MODEL=${CRITIC_MODEL:-FILL_IN}
# Parquet file of prompts, as verl reads them
TRAIN_FILES=${TRAIN_FILES:-FILL_IN}
# likewise; it is opened, and not used
VALIDATION_FILES=${VALIDATION_FILES:-FILL_IN}
# Address of node 0, and the number of this node
HEAD_ADDRESS=${HEAD_ADDRESS:-FILL_IN}
NODE_RANK=${NODE_RANK:-${SLURM_NODEID:-FILL_IN}}

missing=""
for name in REWARD_MODEL ACTOR_MODEL CRITIC_MODEL TRAIN_FILES VALIDATION_FILES HEAD_ADDRESS NODE_RANK; do
  if [ "${!name}" = FILL_IN ]; then missing="$missing $name"; fi
done
if [ -n "$missing" ]; then
  echo "not started, to be filled in:$missing" >&2
  exit 2
fi

# Keys change between versions.
version=$(python3 -c 'import importlib.metadata as m; print(m.version("verl"))')
case "$version" in
  0.9.1) ;;
  *)
    echo "not started: this is for verl@0.9.1, and $version is installed" >&2
    exit 2
    ;;
esac

export HYDRA_FULL_ERROR=1
export CUDA_DEVICE_MAX_CONNECTIONS=1

# A value for Hydra, in which quotes end nothing and nothing is looked up.
quoted() {
  local text=${1//\'/\\\'}
  printf "'%s'" "${text//'${'/'\\${'}"
}

# Each setting follows the decision of the plan that it comes from.
settings=(
  # engine of the actor: megatron
  model_engine=megatron
  # algorithm: ppo
  algorithm.adv_estimator=gae
  critic.enable=True
  algorithm.filter_groups.enable=False
  actor_rollout_ref.actor.clip_ratio_low=0.2
  actor_rollout_ref.actor.clip_ratio_high=0.2
  # workload.kl: reward
  algorithm.use_kl_in_reward=True
  actor_rollout_ref.actor.use_kl_loss=False
  # no call computes them again
  algorithm.rollout_correction.bypass_mode=True
  # algorithm: ppo
  trainer.use_v1=True
  # actor.generate on the actor's GPUs
  trainer.v1.trainer_mode=sync
  actor_rollout_ref.hybrid_engine=True
  # copy actor: GPUs 0-15 of a100
  trainer.nnodes=2
  trainer.n_gpus_per_node=8
  # copy reward: GPUs 0-15 of a100
  reward.reward_model.enable=True
  reward.reward_model.enable_resource_pool=False
  # workload.prompts_per_iteration: 1024
  data.train_batch_size=1024
  # workload.responses_per_prompt: 1
  actor_rollout_ref.rollout.n=1
  # workload.prompt_length: at most 1024
  data.max_prompt_length=1024
  data.filter_overlong_prompts=True
  # workload.response_length: at most 1024
  data.max_response_length=1024
  # workload.turns: 1
  actor_rollout_ref.rollout.multi_turn.enable=False
  # copy actor: tp1 dp16
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1
  actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=1
  actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=null
  actor_rollout_ref.actor.megatron.context_parallel_size=1
  actor_rollout_ref.actor.megatron.expert_model_parallel_size=1
  # copy actor: sharding optimizer
  actor_rollout_ref.actor.megatron.use_distributed_optimizer=True
  # workload.optimizer_cpu_offload: False
  +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=False
  # workload.packed_sequences: True
  actor_rollout_ref.actor.megatron.use_remove_padding=True
  # actor.train: recompute none
  actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=null
  # workload.precision: bf16
  actor_rollout_ref.actor.megatron.dtype=bfloat16
  # copy actor: offload weights
  actor_rollout_ref.actor.megatron.param_offload=True
  actor_rollout_ref.actor.megatron.optimizer_offload=True
  # workload.packed_sequences: True
  actor_rollout_ref.model.use_remove_padding=True
  # workload.optimizer: adam
  actor_rollout_ref.actor.optim.optimizer=adam
  # models.actor.lora: rank 0
  actor_rollout_ref.model.lora.rank=0
  # 1024 prompts in updates: 8
  actor_rollout_ref.actor.ppo_mini_batch_size=128
  # workload.epochs: 1
  actor_rollout_ref.actor.ppo_epochs=1
  # copy reference: tp1 dp16
  actor_rollout_ref.ref.megatron.tensor_model_parallel_size=1
  actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=1
  actor_rollout_ref.ref.megatron.virtual_pipeline_model_parallel_size=null
  actor_rollout_ref.ref.megatron.context_parallel_size=1
  actor_rollout_ref.ref.megatron.expert_model_parallel_size=1
  # workload.precision: bf16
  actor_rollout_ref.ref.megatron.dtype=bfloat16
  # copy reference: offload weights
  actor_rollout_ref.ref.megatron.param_offload=True
  # copy critic: tp1 dp16
  critic.megatron.tensor_model_parallel_size=1
  critic.megatron.pipeline_model_parallel_size=1
  critic.megatron.virtual_pipeline_model_parallel_size=null
  critic.megatron.context_parallel_size=1
  critic.megatron.expert_model_parallel_size=1
  # copy critic: sharding optimizer
  critic.megatron.use_distributed_optimizer=True
  # workload.optimizer_cpu_offload: False
  +critic.optim.override_optimizer_config.optimizer_cpu_offload=False
  # workload.packed_sequences: True
  critic.megatron.use_remove_padding=True
  # critic.train: recompute none
  critic.megatron.override_transformer_config.recompute_granularity=null
  # workload.precision: bf16
  critic.megatron.dtype=bfloat16
  # copy critic: offload weights
  critic.megatron.param_offload=True
  critic.megatron.optimizer_offload=True
  # workload.packed_sequences: True
  critic.model.use_remove_padding=True
  # workload.optimizer: adam
  critic.optim.optimizer=adam
  # models.critic.lora: rank 0
  critic.model.lora.rank=0
  # 1024 prompts in updates: 8
  critic.ppo_mini_batch_size=128
  # workload.epochs: 1
  critic.ppo_epochs=1
  # micro-batches of the tokens that so many sequences have at most (actor.train: 2)
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096
  actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=4096
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2
  # micro-batches of the tokens that so many sequences have at most (reference.forward: 2)
  actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True
  actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=4096
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2
  # micro-batches of the tokens that so many sequences have at most (critic.train: 2,
  #   critic.forward: 2)
  +critic.megatron.use_dynamic_bsz=True
  +critic.ppo_infer_max_token_len_per_gpu=4096
  critic.ppo_micro_batch_size_per_gpu=2
  +critic.megatron.micro_batch_size_per_gpu=2
  +critic.megatron.infer_micro_batch_size_per_gpu=2
  # workload.rollout_engine: vllm
  actor_rollout_ref.rollout.name=vllm
  # actor.generate: tp2 dp8
  actor_rollout_ref.rollout.tensor_model_parallel_size=2
  actor_rollout_ref.rollout.data_parallel_size=1
  actor_rollout_ref.rollout.expert_parallel_size=1
  actor_rollout_ref.rollout.pipeline_model_parallel_size=1
  # 1024 sequences on engines: 8
  actor_rollout_ref.rollout.max_num_seqs=128
  # actor.generate: kv_cache_bytes 56662250837
  +actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes=56662250837
  # actor.generate: 10082881536 bytes of weights and buffers and 56662250837 of cache, of
  #   85899345920
  actor_rollout_ref.rollout.gpu_memory_utilization=0.777
  # actor.generate on GPUs that others use too
  actor_rollout_ref.rollout.free_cache_engine=True
  # what the price assumes
  actor_rollout_ref.rollout.max_num_batched_tokens=8192
  # longest prompt and response
  actor_rollout_ref.rollout.max_model_len=2048
  # workload.precision: bf16
  actor_rollout_ref.rollout.dtype=bfloat16
  # workload.rollout_precision: None
  actor_rollout_ref.rollout.quantization=null
  # workload.rollout_engine: vllm
  reward.reward_model.rollout.name=vllm
  # copy reward: tp1 dp16
  reward.reward_model.rollout.tensor_model_parallel_size=1
  # reward.forward: micro-batch 2
  reward.reward_model.rollout.max_num_seqs=2
  # reward.forward: 16706478080 of 85899345920 bytes
  reward.reward_model.rollout.gpu_memory_utilization=0.1944
  # longest prompt and response, in the template of the reward model
  reward.reward_model.rollout.max_model_len=2304
  # copy reward: offload weights
  reward.reward_model.rollout.free_cache_engine=True
  # folder of the reward: llama-2-7b
  "reward.reward_model.model_path=$(quoted "$REWARD_MODEL")"
  # folder of the actor: llama-2-7b
  "actor_rollout_ref.model.path=$(quoted "$ACTOR_MODEL")"
  # folder of the critic: llama-2-7b
  "critic.model.path=$(quoted "$CRITIC_MODEL")"
  # Parquet file of prompts, as verl reads them
  "data.train_files=$(quoted "$TRAIN_FILES")"
  # likewise; it is opened, and not used
  "data.val_files=$(quoted "$VALIDATION_FILES")"
  # workload.iterations: 400
  trainer.total_training_steps=400
  trainer.total_epochs=1000000
  # workload.checkpoint_every_iterations: None
  trainer.save_freq=-1
  # the plan has no validation
  trainer.test_freq=-1
  trainer.val_before_train=False
  # every iteration trains the actor
  trainer.critic_warmup=0
  # automap calibrate reads the file
  'trainer.logger=[console,file]'
  # where its files go
  trainer.project_name=automap
  # name of the plan
  'trainer.experiment_name='"'"'hybridflow-ppo-7b'"'"''
)

if [ "$NODE_RANK" != 0 ]; then
  until ray health-check --address "$HEAD_ADDRESS:6379"; do sleep 5; done
  exec ray start --address="$HEAD_ADDRESS:6379" --num-gpus=8 --block
fi
ray start --head --node-ip-address="$HEAD_ADDRESS" --port=6379 --num-gpus=8
trap 'ray stop' EXIT
joined='import ray; ray.init("auto", log_to_driver=False)
print(int(ray.cluster_resources().get("GPU", 0)))'
until [ "$(python3 -c "$joined" 2>/dev/null | tail -n 1)" -ge 16 ] 2>/dev/null; do
  sleep 5
done
ray job submit --address=http://127.0.0.1:8265 -- \
  python3 -m verl.trainer.main_ppo "${settings[@]}"
