"""These tests need torch, Ray, vLLM and Megatron-core: `make executor` installs them."""

from importlib.util import find_spec

NEEDED = ("torch", "ray", "vllm", "megatron", "transformers")
collect_ignore_glob = [] if all(map(find_spec, NEEDED)) else ["*test_*.py"]
