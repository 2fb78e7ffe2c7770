#!/bin/bash
#SBATCH --job-name=grpo
#SBATCH --nodes=3
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
# beside: fsdp-config.yaml
NODELIST=($(scontrol show hostnames $SLURM_JOB_NODELIST))
MODEL="Qwen/Qwen2.5-32B"
srun --nodes=1 --ntasks=1 --nodelist="${NODELIST[2]}" \
  trl vllm-serve --model $MODEL --tensor_parallel_size 4 --data_parallel_size 2 &
srun --nodes=2 --ntasks=2 accelerate launch \
  --config_file fsdp-config.yaml --num_processes 16 --num_machines 2 \
  --main_process_ip ${NODELIST[0]} --machine_rank $SLURM_PROCID --rdzv_backend c10d \
  train_grpo.py --model_name_or_path $MODEL --dataset_name d --output_dir o \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 32 --num_generations 16 \
  --max_completion_length 8192 --use_vllm True --vllm_mode server \
  --vllm_server_host ${NODELIST[2]}
