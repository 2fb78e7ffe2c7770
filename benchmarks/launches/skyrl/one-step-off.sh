set -x
DATA_DIR="$HOME/data/gsm8k"
NUM_GPUS=8
TRAIN=$((NUM_GPUS / 2))

python3 -m examples.train.async.main_async \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/validation.parquet']" \
  trainer.algorithm.advantage_estimator="grpo" \
  trainer.policy.model.path="Qwen/Qwen2.5-3B-Instruct" \
  trainer.placement.colocate_all=false \
  trainer.placement.policy_num_gpus_per_node=$TRAIN \
  trainer.placement.ref_num_gpus_per_node=$TRAIN \
  generator.inference_engine.num_engines=$((NUM_GPUS - TRAIN)) \
  generator.inference_engine.tensor_parallel_size=1 \
  trainer.train_batch_size=512 \
  trainer.policy_mini_batch_size=256 \
  trainer.micro_forward_batch_size_per_gpu=32 \
  trainer.micro_train_batch_size_per_gpu=16 \
  trainer.max_prompt_length=512 \
  generator.sampling_params.max_generate_length=1024 \
  environment.env_class=gsm8k
