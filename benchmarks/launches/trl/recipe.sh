# beside: zero3-config.yaml recipe-math.yaml
ACCELERATE_LOG_LEVEL=info \
    accelerate launch --config_file recipes/accelerate_configs/zero3-config.yaml \
    src/open_math/grpo.py --config recipes/qwen/recipe-math.yaml
