"""The parts of the check, in the order in which they run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """What is looked at, and the seconds that it may take."""

    name: str
    title: str
    function: str
    """Module of this package and its function."""
    most_seconds: int


PARTS = (
    Part("kernels", "Attention and AdamW on a GPU, against fp32 and fp64", "kernels:measure", 60),
    Part("megatron", "Megatron-core and vLLM in turns", "engines:megatron", 120),
    Part("fsdp", "FSDP2 and vLLM in turns, the trainer on the host meanwhile", "engines:fsdp", 120),
    Part("fp8", "Rollouts in 8 bits", "engines:fp8", 90),
    Part("transfer", "Weights from GPU to GPU", "transfer:measure", 60),
    Part("loop", "A profile, a plan, two runs", "loop:measure", 400),
)
