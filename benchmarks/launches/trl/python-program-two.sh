#!/bin/bash
# beside: train_grpo.py fsdp-config.yaml
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
head_node_ip=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun accelerate launch --config_file fsdp-config.yaml \
    --machine_rank $SLURM_PROCID --main_process_ip $head_node_ip --main_process_port 29500 \
    train_grpo.py
