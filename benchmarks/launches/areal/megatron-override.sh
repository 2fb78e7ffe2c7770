# beside: small.yaml
#!/usr/bin/env bash
ARGS=(
  scheduler.type=slurm
  cluster.n_nodes=4
  "actor.backend=megatron:d4p2t2"
  "rollout.backend=sglang:d8t2"
  +actor.megatron.recompute_granularity=full
  actor.kl_ctl=0.001
  gconfig.n_samples=16
  total_train_epochs=3
  +total_train_steps=200
)
python3 -m areal.infra.launcher.slurm examples/math/gsm8k_rl.py --config small.yaml "${ARGS[@]}" "$@"
