#!/usr/bin/env bash
# Groups of settings as functions of the script.
model() { echo "trainer.policy.model.path=$1 trainer.ref.model.path=$1"; }
MODEL_ARGS="trainer.policy.model.path=Qwen/Qwen2.5-7B-Instruct"
placement=(
  trainer.placement.colocate_all=false
  trainer.placement.policy_num_nodes=1
  trainer.placement.policy_num_gpus_per_node=8
  trainer.placement.ref_num_gpus_per_node=8
)
engines=(
  generator.inference_engine.num_engines=2
  generator.inference_engine.tensor_parallel_size=4
)
run() {
  python3 -m skyrl.train.entrypoints.main_base $MODEL_ARGS "${placement[@]}" "${engines[@]}" "$@"
}
run trainer.train_batch_size=256 trainer.policy_mini_batch_size=64 \
  trainer.micro_train_batch_size_per_gpu=4 trainer.micro_forward_batch_size_per_gpu=8 \
  generator.sampling_params.max_generate_length=4096 generator.n_samples_per_prompt=8 \
  data.train_data="['/data/train.parquet']"
