#!/bin/bash
# The default configuration of the program.
python -u examples/run_grpo.py policy.model_name=/models/Qwen2.5-1.5B-Instruct \
  cluster.gpus_per_node=8 policy.max_total_sequence_length=2048 2>&1 | tee run.log
