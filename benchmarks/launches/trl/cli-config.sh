# beside: recipe-small.yaml
trl grpo --config recipe-small.yaml --run_name "small $(date +%s)"
