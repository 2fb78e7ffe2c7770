"""What only a GPU can show, as one command: `make gpu-check`, `python -m benchmarks.gpu_check`."""
