# GRPO on short answers.
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = "Qwen/Qwen2.5-3B-Instruct"
MAX_COMPLETION = 2048


def reward_length(completions, **kwargs):
    return [-abs(200 - len(each)) for each in completions]


def main():
    dataset = load_dataset("my-org/short-answers", split="train")
    args = GRPOConfig(
        output_dir="out/short",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        num_generations=8,
        max_completion_length=MAX_COMPLETION,
        learning_rate=1e-6,
        beta=0.04,
        bf16=True,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.3,
        vllm_max_model_length=3072,
        logging_steps=10,
        save_steps=100,
    )
    trainer = GRPOTrainer(model=MODEL, reward_funcs=reward_length, args=args, train_dataset=dataset)
    trainer.train()


if __name__ == "__main__":
    main()
