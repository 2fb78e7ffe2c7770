# with: --job 2
for seed in 1 2 3; do
  python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo data.seed=$seed \
    data.train_batch_size=128 data.max_prompt_length=256 data.max_response_length=768 \
    actor_rollout_ref.model.path=Qwen/Qwen3-0.6B \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.n=4 trainer.n_gpus_per_node=2 trainer.nnodes=1 \
    trainer.experiment_name=seed-$seed
done
