# Engines of a service that runs already; its GPUs are the launch's to say.
python -m skyrl.train.entrypoints.main_base \
  trainer.placement.colocate_all=false \
  generator.inference_engine.run_engines_locally=false \
  generator.inference_engine.external_proxy_url="http://10.0.0.5:8000" \
  generator.inference_engine.num_engines=4 \
  generator.inference_engine.tensor_parallel_size=2 \
  trainer.policy.model.path=Qwen/Qwen2.5-7B-Instruct \
  trainer.placement.policy_num_gpus_per_node=8 trainer.placement.ref_num_gpus_per_node=8 \
  trainer.train_batch_size=128 trainer.policy_mini_batch_size=128 \
  trainer.micro_forward_batch_size_per_gpu=8 trainer.micro_train_batch_size_per_gpu=4 \
  trainer.max_prompt_length=512 generator.sampling_params.max_generate_length=1024 \
  data.train_data="['/data/train.parquet']"
