# beside: train_grpo.py zero3-config.yaml
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 accelerate launch --config_file zero3-config.yaml train_grpo.py
