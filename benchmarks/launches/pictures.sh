# with: --model actor=qwen2.5-7b --set WORLD_SIZE=1
ENGINE=${1:-vllm}
python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo data.image_key=images \
  data.train_batch_size=512 data.max_prompt_length=1024 data.max_response_length=2048 \
  actor_rollout_ref.model.path=OpenGVLab/InternVL3-8B \
  actor_rollout_ref.actor.ppo_mini_batch_size=128 \
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=10 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=20 \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=True \
  actor_rollout_ref.rollout.name=$ENGINE actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 \
  trainer.n_gpus_per_node=8 trainer.nnodes=$WORLD_SIZE
