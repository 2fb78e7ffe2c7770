from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
    script_args, training_args, model_args = parser.parse_args_and_config()
    trainer = GRPOTrainer(model=model_args.model_name_or_path, args=training_args, reward_funcs=[])
    trainer.train()
