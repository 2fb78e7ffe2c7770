set -x
# DAPO's example with a program and keys of its own (soft punishment of long responses).
: "${DATA_DIR:=$HOME/data/dapo}"
OVERLONG_BUFFER_LEN=$((1024 * 4))
OVERLONG_BUFFER_PENALTY_FACTOR=1.0
uv run --isolated --extra fsdp -m examples.train.algorithms.dapo.main_dapo \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/val.parquet']" \
  trainer.algorithm.overlong_buffer_len=$OVERLONG_BUFFER_LEN \
  trainer.algorithm.overlong_buffer_penalty_factor=$OVERLONG_BUFFER_PENALTY_FACTOR \
  trainer.algorithm.dynamic_sampling.type=filter \
  trainer.algorithm.eps_clip_high=0.28 \
  trainer.algorithm.use_kl_loss=false \
  trainer.policy.model.path=Qwen/Qwen3-4B \
  trainer.placement.policy_num_gpus_per_node=8 \
  generator.inference_engine.num_engines=8 \
  trainer.train_batch_size=256 trainer.policy_mini_batch_size=64 \
  trainer.micro_forward_batch_size_per_gpu=8 trainer.micro_train_batch_size_per_gpu=4 \
  trainer.max_prompt_length=2048 generator.sampling_params.max_generate_length=8192 \
  generator.n_samples_per_prompt=16 environment.env_class=aime
