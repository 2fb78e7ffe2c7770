"""What the frameworks behind published runs do where a row does not state it.

A row's `source` names the project; each project has documented defaults. Nothing here is fitted.
"""

from dataclasses import dataclass
from typing import Literal

from planner.spec import TrainingStack


@dataclass(frozen=True, slots=True)
class Framework:
    """Documented defaults of a training framework."""

    name: str
    phrases: tuple[str, ...]
    """Lower-case parts of `source` that identify it."""
    training_stack: TrainingStack
    """With whose constants the cost model prices it (planner/cost/stacks.py)."""
    sharding: Literal["none", "optimizer", "gradient", "full"]
    recompute: Literal["none", "selective", "full"]
    why: str

    @property
    def reason(self) -> str:
        """For an assumption: whose default it is, and why."""
        return f"({self.name}: {self.why})"


FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        "MaxText",
        ("maxtext",),
        "fsdp",
        "full",
        "selective",
        "weights sharded over the fsdp axis; GPU recipes keep the products and repeat the rest",
    ),
    Framework(
        "Megatron-LM of 2021 and 2022",
        ("sc21", "korthikanti", "v100 tuning"),
        "megatron-2021",
        "none",
        "none",
        "the distributed optimizer and recomputation are options",
    ),
    Framework(
        "Megatron-DeepSpeed",
        ("bigscience",),
        "megatron-deepspeed",
        "optimizer",
        "none",
        "ZeRO stage 1; no --checkpoint-activations is the default",
    ),
    Framework(
        "NeMo / Megatron-Bridge",
        ("megatron-bridge", "nemo", "dgx cloud benchmarking"),
        "megatron-core",
        "optimizer",
        "none",
        "recipes train with the distributed optimizer and recompute nothing unless stated",
    ),
    Framework(
        "Megatron-LM",
        ("megatron-lm",),
        "megatron-core",
        "optimizer",
        "none",
        "example scripts pass --use-distributed-optimizer; no --recompute-… option is the default",
    ),
    Framework(
        "llm-foundry",
        ("llm-foundry",),
        "fsdp-eager",
        "full",
        "none",
        "FSDP with Triton attention, not compiled; activation checkpointing is an option",
    ),
    Framework(
        "FSDP",
        ("torchtitan", "fms-fsdp"),
        "fsdp",
        "full",
        "none",
        "fully sharded data parallelism; activation checkpointing is an option",
    ),
    Framework(
        "LitGPT",
        ("litgpt",),
        "fsdp-eager",
        "none",
        "none",
        "single-device finetuning recipes shard nothing and keep all activations",
    ),
)
UNKNOWN = Framework(
    "unknown framework",
    (),
    "megatron-core",
    "optimizer",
    "none",
    "the most common setting of published runs",
)

NOTED: tuple[tuple[str, str], ...] = (
    ("gradients accumulated in fp16", "gradients are taken as fp32 (the run had fp16)"),
    ("grads accumulated in fp16", "gradients are taken as fp32 (the run had fp16)"),
    ("sliding window", "sliding-window layers are priced with full attention"),
    ("chunked attention", "chunked-attention layers are priced with full attention"),
    ("async tp", "tensor-parallel communication is priced as exposed (the run overlapped it)"),
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


def framework_of(source: str) -> Framework:
    """The framework behind a source; `UNKNOWN` where none is recognised."""
    lower = source.lower()
    found = (one for one in FRAMEWORKS if any(phrase in lower for phrase in one.phrases))
    return next(found, UNKNOWN)
