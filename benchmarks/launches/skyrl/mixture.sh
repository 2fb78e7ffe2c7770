set -x
# A mixture of experts on four nodes: other sizes for the reference than for the policy.
DATA_DIR="${DATA_DIR:-$HOME/data/dapo}"
NODES=4
GPUS=8
TP=4
PP=1
EP=8
ETP=1

CMD="uv run --isolated --extra megatron -m skyrl.train.entrypoints.main_base"
$CMD \
  trainer.strategy=megatron \
  trainer.policy.model.path="Qwen/Qwen3-30B-A3B" \
  trainer.placement.policy_num_nodes=$NODES trainer.placement.policy_num_gpus_per_node=$GPUS \
  trainer.placement.ref_num_nodes=$NODES trainer.placement.ref_num_gpus_per_node=$GPUS \
  trainer.policy.megatron_config.tensor_model_parallel_size=$TP \
  trainer.policy.megatron_config.pipeline_model_parallel_size=$PP \
  trainer.policy.megatron_config.expert_model_parallel_size=$EP \
  trainer.policy.megatron_config.expert_tensor_parallel_size=$ETP \
  trainer.ref.megatron_config.tensor_model_parallel_size=1 \
  trainer.ref.megatron_config.expert_model_parallel_size=$EP \
  trainer.ref.megatron_config.expert_tensor_parallel_size=$ETP \
  trainer.policy.megatron_config.optimizer_config_kwargs.optimizer_cpu_offload=false \
  generator.inference_engine.num_engines=$NODES \
  generator.inference_engine.tensor_parallel_size=4 \
  generator.inference_engine.data_parallel_size=2 \
  generator.inference_engine.expert_parallel_size=8 \
  generator.inference_engine.gpu_memory_utilization=0.6 \
  data.train_data="['$DATA_DIR/train.parquet']" data.val_data="['$DATA_DIR/test.parquet']" \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=32 \
  trainer.max_tokens_per_microbatch=16384 \
  trainer.max_prompt_length=2048 generator.sampling_params.max_generate_length=8192 \
  generator.n_samples_per_prompt=16 \
  trainer.algorithm.use_kl_loss=false \
  environment.env_class=aime
