# beside: config-a.yaml config-base.yaml
python3 -m verl.trainer.main_ppo \
  --config-path=$PWD/config --config-name=config-a \
  trainer.nnodes=2 actor_rollout_ref.rollout.gpu_memory_utilization=0.7
