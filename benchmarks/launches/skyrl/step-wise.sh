# A training sequence for each turn, on two nodes of an agent that writes code.
ulimit -n 65536
source "$HOME/.env"
MODEL=Qwen/Qwen3-8B
CMD=(
  uv run --isolated --extra fsdp --extra miniswe --env-file .env.miniswe
  -m examples.train.mini_swe_agent.main_mini_swe
)
"${CMD[@]}" \
  data.train_data="['$HOME/data/swe_gym/train.parquet']" \
  data.val_data="['$HOME/data/swe_gym/validation.parquet']" \
  trainer.algorithm.advantage_estimator="grpo" \
  trainer.policy.model.path="$MODEL" \
  trainer.placement.policy_num_nodes=2 trainer.placement.policy_num_gpus_per_node=8 \
  trainer.placement.ref_num_nodes=2 trainer.placement.ref_num_gpus_per_node=8 \
  trainer.policy.sequence_parallel_size=4 \
  generator.inference_engine.num_engines=8 \
  generator.inference_engine.tensor_parallel_size=2 \
  generator.max_turns=20 generator.max_input_length=30720 \
  generator.sampling_params.max_generate_length=4096 \
  generator.miniswe_config_path="examples/train/mini_swe_agent/swebench.yaml" \
  generator.miniswe_traj_dir="$HOME/mini_swe_agent_trajs" \
  trainer.max_prompt_length=4096 \
  trainer.train_batch_size=16 trainer.policy_mini_batch_size=16 \
  trainer.micro_forward_batch_size_per_gpu=1 trainer.micro_train_batch_size_per_gpu=1 \
  generator.n_samples_per_prompt=8 \
  trainer.algorithm.use_kl_loss=true trainer.algorithm.kl_loss_coef=0.001
