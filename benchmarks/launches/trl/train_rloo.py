from datasets import load_dataset
from my_rewards import correct
from trl import RLOOConfig, RLOOTrainer

training_args = RLOOConfig(
    output_dir="out/rloo",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=8,
    steps_per_generation=16,
    num_generations=4,
    max_completion_length=1024,
    use_vllm=True,
    vllm_mode="server",
    vllm_server_host="10.0.0.7",
    max_steps=1000,
)
trainer = RLOOTrainer(
    model="meta-llama/Llama-3.1-8B-Instruct",
    reward_funcs=correct,
    args=training_args,
    train_dataset=load_dataset("json", data_files="prompts.jsonl", split="train"),
)
trainer.train()
