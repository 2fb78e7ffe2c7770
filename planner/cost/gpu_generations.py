"""What GPU generations sustain in training over their operator tables' short benchmarks.

The tables time one kernel at a time, with an inference engine's kernels. Training differs by
generation: power and heat pull clocks down, and its attention kernels are others. Constants
are priors; of them fits with runs left out free the gain of 8 bits alone, which would be 0.965
(`python -m benchmarks.fit_training TABLE.csv`); docs/concepts/accuracy.md has the errors.
"""

from dataclasses import dataclass

from automap.planner.catalogue.hardware import GpuType
from automap.planner.cost.operators.profile import Profile


@dataclass(frozen=True, slots=True)
class Generation:
    """Speed of training on GPUs of one generation, relative to the operator tables for them."""

    sustained_share: float = 0.94
    """Rate of matrix products under hours of load over that of a short benchmark."""
    eight_bit_gain: float = 1.0
    """Rate of training's products in 8 bits over the tables' without the casts timed with them."""
    attention_share: float = 1.0
    """Rate of training's attention over the tables' context kernel, times the stack's share."""


GENERATIONS: dict[str, Generation] = {
    "volta": Generation(),
    "ampere": Generation(),
    "ada": Generation(eight_bit_gain=0.93),
    "none": Generation(),
    # Kernels written for Ampere miss the asynchronous tensor instructions: Shah et al. 2024
    # (arXiv:2407.08608) measure FlashAttention-2 at 35 % of an H100's peak, and kernels made for
    # it 1.5 to 2 times as fast.
    "hopper": Generation(eight_bit_gain=0.93, attention_share=0.7),
    # Training's attention there is cuDNN's, made for the generation.
    "blackwell": Generation(eight_bit_gain=0.93, attention_share=0.85),
    # Tables of its own are missing: Blackwell's efficiency is carried over, on a tenth to a sixth
    # more power (B300 1,100 W for 1,000, GB300 1,400 W for 1,200) and twice the exponentials.
    "blackwell-ultra": Generation(sustained_share=1.06, eight_bit_gain=0.93, attention_share=1.1),
    # No table is of an AMD GPU: the H200's efficiency stands in for it. A public comparison
    # measured bf16 products at 620 TFLOP/s on an MI300X and at 720 on an H100 and H200, 47 % and
    # 73 % of their peaks (SemiAnalysis, "MI300X vs H100 vs H200", 22 December 2024); CDNA 4 is
    # taken to be as far from its peak.
    "cdna3": Generation(sustained_share=0.61, eight_bit_gain=0.93, attention_share=0.68),
    "cdna4": Generation(sustained_share=0.61, eight_bit_gain=0.93, attention_share=0.68),
}


def generation_of(gpu: GpuType) -> Generation:
    """The constants of a GPU's generation."""
    return GENERATIONS[gpu.generation]


def over_tables(profile: Profile) -> Generation:
    """Speed that training sustains relative to the tables of a profile.

    Tables measured on the hardware itself have training's kernels, and its own power: all that is
    left is that clocks fall under hours of load.
    """
    own, usual = generation_of(profile.gpu), Generation()
    if not profile.measured_here:
        return own
    return Generation(sustained_share=min(own.sustained_share, usual.sustained_share))
