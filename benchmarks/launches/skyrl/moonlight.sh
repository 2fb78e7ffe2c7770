set -x
# Latent attention and experts under Megatron: 16 GPUs.
DATA_DIR="$HOME/data/gsm8k"
MODEL_NAME="moonshotai/Moonlight-16B-A3B-Instruct"
NUM_NODES=2
NUM_GPUS=8
FLASH_ATTN=false
MEGATRON_EP=8
MEGATRON_ETP=1
uv run --isolated --extra megatron -m skyrl.train.entrypoints.main_base \
  data.train_data="['$DATA_DIR/train.parquet']" \
  data.val_data="['$DATA_DIR/validation.parquet']" \
  trainer.policy.model.path=$MODEL_NAME \
  trainer.strategy=megatron \
  trainer.flash_attn=$FLASH_ATTN \
  trainer.placement.policy_num_nodes=$NUM_NODES \
  trainer.placement.policy_num_gpus_per_node=$NUM_GPUS \
  trainer.policy.megatron_config.tensor_model_parallel_size=1 \
  trainer.policy.megatron_config.expert_model_parallel_size=$MEGATRON_EP \
  trainer.policy.megatron_config.expert_tensor_parallel_size=$MEGATRON_ETP \
  trainer.policy.megatron_config.moe_token_dispatcher_type="alltoall" \
  trainer.policy.megatron_config.moe_router_load_balancing_type="none" \
  trainer.policy.megatron_config.moe_grouped_gemm=true \
  generator.inference_engine.num_engines=2 \
  generator.inference_engine.tensor_parallel_size=8 \
  generator.inference_engine.gpu_memory_utilization=0.6 \
  generator.inference_engine.distributed_executor_backend=mp \
  trainer.algorithm.use_kl_loss=false \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=64 \
  trainer.micro_forward_batch_size_per_gpu=4 trainer.micro_train_batch_size_per_gpu=2 \
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 \
  environment.env_class=gsm8k trainer.logger=wandb
