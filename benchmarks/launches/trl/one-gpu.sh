# beside: train_grpo.py
python train_grpo.py 2>&1 | tee train.log
