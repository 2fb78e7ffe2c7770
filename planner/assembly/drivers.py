"""What a framework's driver adds to the calls of an iteration, in words: no price has it."""

from collections.abc import Iterator, Sequence

from automap.planner.cost.rl_systems import system_of
from automap.planner.job.job import Job
from automap.planner.plan.types import CopyPlacement

LEAST_SHARE = 0.01
"""Share of an iteration below which nothing is said."""


def driver_lines(
    job: Job, copies: Sequence[CopyPlacement], *, iteration_seconds: float
) -> Iterator[str]:
    """Seconds of the target's driver that a plan's iteration leaves out; none where unknown."""
    system, workload = system_of(job.target.name), job.spec.workload
    longest = workload.prompt_length.mean_tokens + workload.response_length.max_tokens
    calls = sum(call.model is not None for call in job.dataflow.calls)
    handed = calls * system.handover_seconds_per_token * workload.num_sequences * longest
    seconds = system.iteration_seconds + handed
    if seconds < LEAST_SHARE * iteration_seconds:
        return
    around = f"{system.iteration_seconds:g} s around them, " if system.iteration_seconds else ""
    batch = f"{workload.num_sequences:,} padded sequences to {calls} calls"
    yield (
        f"search.target: iterations of {system.name} were measured to take longer than their "
        f"calls, here by about {seconds:.3g} s ({around}{handed:.3g} s to hand {batch}), which is "
        "in no number of this plan"
    )
    rate = system.host_copy_bytes_per_second
    if rate is not None and any(copy.offload != "none" for copy in copies):
        yield (
            f"search.target: {system.name} is thought to move what is offloaded at "
            f"{rate / 1e9:g} GB/s per GPU, and this plan is priced with the host's link"
        )
