"""Automap: placement and parallelism for RL post-training of LLMs."""
