# beside: mixture-30b.yaml
#!/usr/bin/env bash
TP=4
EP=8
python examples/math/gsm8k_rl.py --config mixture-30b.yaml scheduler.type=ray \
  "actor.backend='megatron:(attn:d4t${TP}|ffn:d$((16 / EP))e${EP})'" rollout.backend=sglang:d4t4
