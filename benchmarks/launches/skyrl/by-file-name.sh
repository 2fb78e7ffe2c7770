cd "$HOME/SkyRL"
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export NCCL_DEBUG=WARN
nohup python skyrl/train/entrypoints/main_base.py \
  trainer.policy.model.path=Qwen/Qwen2.5-0.5B-Instruct \
  trainer.placement.policy_num_gpus_per_node=8 \
  trainer.placement.ref_num_gpus_per_node=8 \
  trainer.gradient_checkpointing=false \
  trainer.policy.fsdp_config.reshard_after_forward=false \
  generator.inference_engine.num_engines=8 \
  generator.inference_engine.gpu_memory_utilization=0.5 \
  trainer.train_batch_size=1024 trainer.policy_mini_batch_size=256 \
  trainer.micro_train_batch_size_per_gpu=32 trainer.micro_forward_batch_size_per_gpu=64 \
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 \
  data.train_data="['train.parquet']" > run.log 2>&1 &
