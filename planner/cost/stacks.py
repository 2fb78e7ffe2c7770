"""Training software by name: the few constants in which frameworks and their generations differ.

Everything else of the cost model holds for all of them. Constants fitted with
`python -m benchmarks.fit_training TABLE.csv` on published dense bf16 and fp16 training runs
(docs/accuracy.md has the errors); bounds of the fit are what physics allows.
"""

from dataclasses import dataclass
from typing import Literal

from planner.spec import TrainingStack


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """What one kind of training software does with the same layers on the same GPUs."""

    name: TrainingStack
    summary: str
    attention: Literal["flash", "unfused"]
    """flash: one kernel that never stores the scores. unfused: product, masked softmax, product."""
    attention_share: float
    """Rate of attention over the operator tables' kernel (flash), or over the products and the
    traffic of the scores (unfused), forward and backward, before the GPU generation's share
    (planner/cost/generations.py)."""
    elementwise_passes: float
    """Memory traffic of norms, residuals and activations over that of fused kernels."""
    collective_slowdown: float
    """Exposed seconds of collectives over the tables' in isolation: below 1 where the software
    overlaps tensor-parallel collectives, above 1 where it copies, casts or waits around them."""
    overlaps_stages: bool = False
    """Messages between interleaved pipeline stages travel beside another chunk's compute."""


STACKS: dict[TrainingStack, SoftwareStack] = {
    stack.name: stack
    for stack in (
        SoftwareStack(
            "megatron-core",
            "Megatron-core with Transformer Engine, 2024 and later",
            attention="flash",
            attention_share=0.8,
            elementwise_passes=0.83,
            collective_slowdown=0.84,
            overlaps_stages=True,
        ),
        SoftwareStack(
            "fsdp",
            "PyTorch FSDP (or XLA) with a compiler and FlashAttention-2, 2024 and later",
            attention="flash",
            attention_share=0.56,
            elementwise_passes=1.46,
            collective_slowdown=1.14,
        ),
        SoftwareStack(
            "fsdp-eager",
            "PyTorch FSDP without a compiler, Triton attention, 2023",
            attention="flash",
            attention_share=0.42,
            elementwise_passes=1.0,
            collective_slowdown=2.0,
        ),
        SoftwareStack(
            "megatron-2021",
            "Megatron-LM before flash attention, 2021 and 2022",
            attention="unfused",
            attention_share=0.84,
            elementwise_passes=1.47,
            collective_slowdown=1.12,
        ),
        SoftwareStack(
            "megatron-deepspeed",
            "Megatron-LM on DeepSpeed's pipeline engine, before flash attention, 2022",
            attention="unfused",
            attention_share=0.44,
            elementwise_passes=4.6,
            collective_slowdown=2.0,
        ),
    )
}
