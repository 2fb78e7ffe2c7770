"""A Llama of 131 thousand random weights: large enough for every engine, trained in seconds."""

from pathlib import Path

END_TOKEN = 1
"""Ends a response; 0 begins a prompt and fills padding."""
VOCAB_SIZE = 256


def write_tiny_model(folder: Path, *, seed: int = 0, num_layers: int = 2) -> None:
    """A Hugging Face folder (config and fp32 safetensors); the same seed gives the same weights.

    hidden_size 64, intermediate_size 128, 4 heads of head_dim 32, the smallest that vLLM takes on
    a CPU; embedding and head are not tied. The global random state is left as it was.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.02,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=END_TOKEN,
        pad_token_id=0,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
