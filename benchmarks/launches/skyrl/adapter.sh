set -x
# LoRA of rank 32 on one node, without a reference.
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base \
  trainer.policy.model.path="Qwen/Qwen2.5-7B-Instruct" \
  trainer.policy.model.lora.rank=32 \
  trainer.policy.model.lora.alpha=32 \
  trainer.policy.model.lora.lora_sync_path="/tmp/skyrl_lora_sync" \
  trainer.policy.optimizer_config.lr=3.0e-5 \
  trainer.algorithm.use_kl_loss=false \
  trainer.placement.policy_num_gpus_per_node=4 \
  generator.inference_engine.num_engines=4 \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=128 \
  trainer.micro_forward_batch_size_per_gpu=16 trainer.micro_train_batch_size_per_gpu=16 \
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 \
  generator.n_samples_per_prompt=5 environment.env_class=gsm8k \
  data.train_data="['/data/gsm8k/train.parquet']" data.val_data="['/data/gsm8k/val.parquet']"
