# beside: small.yaml
#!/usr/bin/env bash
python3 examples/math/gsm8k_rl.py --config examples/math/small.yaml scheduler.type=local
