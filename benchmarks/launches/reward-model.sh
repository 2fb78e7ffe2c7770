set -x
ACTOR=Qwen/Qwen3-4B
RM=Qwen/Qwen2.5-7B-Instruct
python -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_batch_size=256 data.max_prompt_length=1024 data.max_response_length=2048 \
  actor_rollout_ref.model.path=$ACTOR \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.5 actor_rollout_ref.rollout.n=4 \
  reward_model.enable=True reward_model.enable_resource_pool=True \
  reward_model.n_gpus_per_node=8 reward_model.nnodes=1 \
  reward_model.model.path=$RM reward_model.rollout.name=vllm \
  reward_model.rollout.tensor_model_parallel_size=2 reward_model.rollout.gpu_memory_utilization=0.8 \
  custom_reward_function.path=recipe/reward.py \
  trainer.n_gpus_per_node=8 trainer.nnodes=2
