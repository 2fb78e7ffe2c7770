# beside: small.yaml
#!/usr/bin/env bash
CONFIG=$1; shift
export TOKENIZERS_PARALLELISM=true
torchrun --nproc_per_node 1 train.py --config "$CONFIG" rollout.max_head_offpolicyness=0 "$@"
