docker exec -it verl bash -lc "
  cd /workspace && python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=256 data.max_prompt_length=1024 data.max_response_length=1024 \
    actor_rollout_ref.model.path=/models/Qwen2.5-7B-Instruct \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=4 \
    trainer.nnodes=1 trainer.n_gpus_per_node=8
"
