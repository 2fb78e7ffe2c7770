set -x

# PPO with a critic beside the policy, all on four GPUs.
DATA_DIR="$HOME/data/gsm8k"
MODEL="Qwen/Qwen2.5-7B-Instruct"
NUM_GPUS=8

uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.algorithm.advantage_estimator="gae" \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/validation.parquet']" \
  trainer.policy.model.path="$MODEL" \
  trainer.critic.model.path="$MODEL" \
  trainer.placement.colocate_all=true \
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \
  trainer.placement.critic_num_gpus_per_node=$NUM_GPUS \
  trainer.placement.ref_num_gpus_per_node=$NUM_GPUS \
  generator.inference_engine.num_engines=$((NUM_GPUS / 2)) \
  generator.inference_engine.tensor_parallel_size=2 \
  trainer.critic.optimizer_config.lr=5.0e-6 \
  trainer.policy.optimizer_config.lr=1.0e-6 \
  trainer.algorithm.lambd=0.95 trainer.algorithm.gamma=1.0 \
  trainer.algorithm.use_kl_loss=false trainer.algorithm.use_kl_in_reward=true \
  trainer.train_batch_size=512 \
  trainer.policy_mini_batch_size=128 \
  trainer.critic_mini_batch_size=128 \
  trainer.micro_forward_batch_size_per_gpu=16 \
  trainer.micro_train_batch_size_per_gpu=4 \
  trainer.max_prompt_length=512 \
  generator.sampling_params.max_generate_length=2048 \
  generator.n_samples_per_prompt=4 \
  environment.env_class=gsm8k \
  trainer.eval_interval=-1 trainer.eval_before_train=false \
  trainer.logger=console
