"""What frameworks and people call the fields of a job spec, and what to write here instead."""

FIELDS = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
    "n": "responses_per_prompt",
    "rollout_n": "responses_per_prompt",
    "num_generations": "responses_per_prompt",
    "num_generations_per_prompt": "responses_per_prompt",
    "n_samples": "responses_per_prompt",
    "n_samples_per_prompt": "responses_per_prompt",
    "group_size": "responses_per_prompt",
    "batch_size": "prompts_per_iteration",
    "train_batch_size": "prompts_per_iteration",
    "rollout_batch_size": "prompts_per_iteration",
    "num_prompts": "prompts_per_iteration",
    "num_prompts_per_step": "prompts_per_iteration",
    "prompt_tokens": "prompt_length",
    "max_prompt_length": "prompt_length",
    "prompt_max_len": "prompt_length",
    "response_tokens": "response_length",
    "max_response_length": "response_length",
    "max_completion_length": "response_length",
    "max_new_tokens": "response_length",
    "generate_max_len": "response_length",
    "rollout_max_response_len": "response_length",
    "ppo_epochs": "epochs",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_length": "mean",
    "max_length": "max",
    "average": "mean",
    "model": "architecture",
    "model_path": "architecture",
    "name": "architecture",
    "gpu_type": "gpu",
    "nodes": "num_nodes",
    "nnodes": "num_nodes",
    "n_gpus_per_node": "gpus_per_node",
}
"""Name → the field that says the same."""

_MINI_BATCH = (
    "write workload.updates_per_epoch, how many mini-batches the sequences of an iteration are "
    "trained in"
)
_MICRO_BATCH = (
    "remove it, the plan chooses it; to fix it, write constraints.parallelism, for example "
    "{actor.train: {micro_batch_size: 2}}"
)
_KL = "write workload.kl: loss, reward or none; a plan needs no coefficient"
_ITERATIONS = "write workload.iterations, how many iterations to train"
INSTEAD = {
    "mini_batch_size": _MINI_BATCH,
    "ppo_mini_batch_size": _MINI_BATCH,
    "global_batch_size": _MINI_BATCH,
    "train_global_batch_size": _MINI_BATCH,
    "micro_batch_size": _MICRO_BATCH,
    "ppo_micro_batch_size": _MICRO_BATCH,
    "ppo_micro_batch_size_per_gpu": _MICRO_BATCH,
    "per_device_train_batch_size": _MICRO_BATCH,
    "use_kl_loss": _KL,
    "use_kl_in_reward": _KL,
    "kl_coef": _KL,
    "kl_loss_coef": _KL,
    "beta": _KL,
    "total_epochs": _ITERATIONS,
    "num_train_epochs": _ITERATIONS,
    "max_steps": _ITERATIONS,
    "total_training_steps": _ITERATIONS,
}
"""Name that no field has a value of → what to do."""
