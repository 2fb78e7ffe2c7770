"""RL frameworks by name: what one iteration takes around its calls, and what their tables mean.

None of it is in the planner's prices: a plan is not the framework's driver. Constants are fitted
with `python -m benchmarks.fit_rlhf TABLE.csv` (docs/concepts/accuracy.md has the errors) to whole
iterations and shares of stages, but for the rate of host copies, which is chosen; no source takes
an iteration apart, so what each constant stands for is the likeliest cause of a term of that shape.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RlSystem:
    """One framework's iteration, beside the seconds of its generation, scoring and training."""

    name: str
    """As the column `system` begins."""
    iteration_seconds: float = 0.0
    """Of every iteration, on the driver: rewards, advantages, collecting and packing sequences,
    handing batches to the workers and starting their passes."""
    host_copy_bytes_per_second: float | None = None
    """Per GPU, of the training state on its way to the host before a colocated generation, and
    back: pageable memory is several times slower than pinned. None: the pinned rate. Not fitted:
    beside `iteration_seconds` the rows do not tell it."""
    handover_seconds_per_token: float = 0.0
    """Of every stage: the driver concatenates, splits and sends its batch, padded to the longest
    sequence. More GPUs do not make it shorter."""
    averages_responses: bool = False
    """Its average sequence length leaves the prompt out."""


UNKNOWN = RlSystem("")
SYSTEMS: list[RlSystem] = [
    RlSystem(
        "NeMo-RL",
        iteration_seconds=13.0,
        host_copy_bytes_per_second=4e9,  # chosen: one thread copying pageable memory
        # Its tokens per second and GPU count about 130 tokens more per sequence (Llama), 100 more
        # (Qwen3): the prompts.
        averages_responses=True,
    ),
    RlSystem("verl", handover_seconds_per_token=150e-9),
]


def system_of(name: str) -> RlSystem:
    """The framework of a row; `UNKNOWN`, which adds nothing, where none is recognised."""
    return next((one for one in SYSTEMS if name.startswith(one.name)), UNKNOWN)
