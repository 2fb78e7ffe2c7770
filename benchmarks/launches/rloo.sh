set -x
export VLLM_USE_V1=1
MODEL_PATH=Qwen/Qwen2.5-1.5B-Instruct
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=rloo \
    data.train_batch_size=256 data.max_prompt_length=512 data.max_response_length=1024 \
    actor_rollout_ref.model.path="$MODEL_PATH" \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 \
    actor_rollout_ref.actor.use_kl_loss=False algorithm.use_kl_in_reward=True \
    algorithm.kl_penalty=kl algorithm.kl_ctrl.kl_coef=0.001 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.rollout.name=sglang actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=4 \
    trainer.n_gpus_per_node=4 trainer.nnodes=1 trainer.total_training_steps=200
