# beside: train_rloo.py
trl vllm-serve --model meta-llama/Llama-3.1-8B-Instruct --tensor_parallel_size 4 &
sleep 60
accelerate launch --num_processes 4 --multi_gpu train_rloo.py
