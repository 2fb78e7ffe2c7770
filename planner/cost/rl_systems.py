"""RL frameworks by name: time that an iteration takes around its calls, and what tables count.

Prices of plans for a framework as target have it (`PricedJob`, `resolution`), those of validated
rows as well. Constants are fitted with `python -m benchmarks.fit_rlhf TABLE.csv`
(docs/concepts/accuracy.md has the errors) to whole iterations and shares of stages, but for the
rate of host copies, which is chosen; no source takes an iteration apart, so what each constant
stands for is the likeliest cause of a term of that shape.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RlSystem:
    """Time of one framework's iteration beside its generation, scoring and training."""

    name: str
    """Beginning of the column `system` by which a row is recognised."""
    iteration_seconds: float = 0.0
    """Seconds of every iteration on the driver, whatever its size: rewards, advantages, starting
    calls on the workers, logging."""
    host_copy_bytes_per_second: float | None = None
    """Rate per GPU at which training state goes to the host before a colocated generation, and
    back: pageable memory is several times slower than pinned. None: the pinned rate. Not fitted,
    because the rows cannot separate it from `iteration_seconds`."""
    handover_seconds_per_token: float = 0.0
    """Seconds per padded token and call in which the driver concatenates, packs, splits and sends
    the batch: some sixty bytes a token, copied and serialised by one process. More GPUs do not make
    it shorter."""
    averages_responses: bool = False
    """Whether its average sequence length leaves the prompt out."""

    def handover_seconds(self, padded_tokens: int) -> float:
        """Seconds in which its driver hands one call a batch, padded to its longest sequence."""
        return self.handover_seconds_per_token * padded_tokens


UNKNOWN = RlSystem("")
SYSTEMS: list[RlSystem] = [
    RlSystem(
        "NeMo-RL",
        iteration_seconds=4.0,  # its prior
        handover_seconds_per_token=300e-9,
        host_copy_bytes_per_second=4e9,  # chosen: one thread copying pageable memory
        # Its tokens per second and GPU count about 130 tokens more per sequence (Llama), 100 more
        # (Qwen3): the prompts.
        averages_responses=True,
    ),
    RlSystem("verl", handover_seconds_per_token=150e-9),
]


def system_of(name: str) -> RlSystem:
    """The framework of a row, or of a target; `UNKNOWN`, which adds nothing, if none is known."""
    found = (one for one in SYSTEMS if name.lower().startswith(one.name.lower()))
    return next(found, UNKNOWN)
