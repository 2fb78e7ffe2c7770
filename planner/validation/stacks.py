"""What the frameworks behind published runs do where a row does not state it.

A row's `source` names the project; each project has documented defaults. Nothing here is fitted.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Stack:
    """Documented defaults of a training framework."""

    name: str
    phrases: tuple[str, ...]
    """Lower-case parts of `source` that identify it."""
    sharding: Literal["none", "optimizer", "gradient", "full"]
    recompute: Literal["none", "selective", "full"]
    why: str


STACKS: tuple[Stack, ...] = (
    Stack(
        "MaxText",
        ("maxtext",),
        "full",
        "full",
        "base.yml: remat_policy full, weights sharded over the fsdp axis",
    ),
    Stack(
        "NeMo / Megatron-Bridge",
        ("megatron-bridge", "nemo", "dgx cloud benchmarking"),
        "optimizer",
        "none",
        "recipes train with the distributed optimizer and recompute nothing unless stated",
    ),
    Stack(
        "Megatron-LM",
        ("megatron-lm", "korthikanti", "bigscience"),
        "optimizer",
        "none",
        "example scripts pass --use-distributed-optimizer; no --recompute-… option is the default",
    ),
    Stack(
        "FSDP",
        ("torchtitan", "llm-foundry", "fms-fsdp"),
        "full",
        "none",
        "fully sharded data parallelism; activation checkpointing is an option",
    ),
    Stack(
        "LitGPT",
        ("litgpt",),
        "none",
        "none",
        "single-device finetuning recipes shard nothing and keep all activations",
    ),
)
UNKNOWN = Stack(
    "unknown framework", (), "optimizer", "none", "the most common setting of published runs"
)

NOTED: tuple[tuple[str, str], ...] = (
    ("gradients accumulated in fp16", "gradients are taken as fp32 (the run had fp16)"),
    ("grads accumulated in fp16", "gradients are taken as fp32 (the run had fp16)"),
    ("sliding window", "sliding-window layers are priced with full attention"),
    ("chunked attention", "chunked-attention layers are priced with full attention"),
    ("async tp", "tensor-parallel communication is priced as exposed (the run overlapped it)"),
    ("fp8 key-value cache", "the key-value cache is taken as bf16 (the run had fp8)"),
    ("in every other layer", "layers of a kind are priced as if the dense ones came first"),
    ("hybrid sharding", "hybrid sharding is priced as sharding over all data-parallel ranks"),
)
"""Phrases of `notes` (lower case) that name what the cost model does not follow."""

UNPRICED: tuple[tuple[str, str], ...] = (
    ("gated linear attention", "gated linear attention is not in the cost model"),
    ("optimizer offloaded to cpu", "an optimizer step on the CPU is not in the cost model"),
    ("base weights quantised to 4 bits", "4-bit base weights are not in the cost model"),
)
"""Phrases of `notes` (lower case) for which there is no prediction."""


def stack_of(source: str) -> Stack:
    """The framework behind a source; `UNKNOWN` where none is recognised."""
    lower = source.lower()
    found = (stack for stack in STACKS if any(phrase in lower for phrase in stack.phrases))
    return next(found, UNKNOWN)
