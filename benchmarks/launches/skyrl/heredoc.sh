#!/usr/bin/env bash
# Writes what it runs beside its log, and then runs it.
set -eu
OUT=${OUT:-./runs/$(date +%s)}
mkdir -p "$OUT"
cat > "$OUT/note.txt" <<EOF
GRPO of a model with 3B parameters.
EOF
OPTS=""
OPTS+=" trainer.policy.model.path=meta-llama/Llama-3.2-3B-Instruct"
OPTS+=" trainer.placement.policy_num_gpus_per_node=8"
OPTS+=" trainer.placement.ref_num_gpus_per_node=8"
OPTS+=" generator.inference_engine.num_engines=8"
OPTS+=" trainer.train_batch_size=512"
OPTS+=" trainer.policy_mini_batch_size=128"
OPTS+=" trainer.micro_forward_batch_size_per_gpu=16"
OPTS+=" trainer.micro_train_batch_size_per_gpu=8"
OPTS+=" generator.n_samples_per_prompt=8"
OPTS+=" data.train_data=['/data/train.parquet']"
python -m skyrl.train.entrypoints.main_base $OPTS trainer.log_path="$OUT" trainer.ckpt_path="$OUT/ckpts"
