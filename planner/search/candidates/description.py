"""The searched space in words: over what the optimality of a plan is claimed."""

from automap.planner.cost.generation.streaming import TAILS
from automap.planner.cost.intervals import largest_estimate
from automap.planner.cost.memory import NO_MARGIN
from automap.planner.job.job import Job
from automap.planner.search.candidates.enumeration import SPACE
from automap.planner.search.candidates.streams_and_tails import wanted_tails


def describe_space(job: Job) -> str:
    """Which placements of a job are searched, for the plan's report."""
    text = f"{SPACE}; target {job.target.name}: {job.target.summary}"
    if any(edge.streamed for edge in job.dataflow.edges):
        text += f"; responses handed over in {job.spec.search.stream_chunks} chunks"
    if tails := [TAILS[number - 1] for number in wanted_tails(job.spec.search)]:
        kinds = ", ".join(
            f"after {tail.ended_share:g} "
            + (f"with {tail.tensor_factor} times" if tail.ratio == 1 else f"on 1/{tail.ratio}")
            for tail in tails
        )
        text += "; generation whole, or ending on a part of its GPUs or with a multiple of its "
        text += f"tensor size ({kinds})"
    return text + _margin(job.max_out_of_memory_probability)


def _margin(probability: float) -> str:
    """What of a GPU stays free, in digits that tell one law of errors from another."""
    if probability >= NO_MARGIN:
        return ""
    share = largest_estimate(1.0, "memory", probability=probability)
    return (
        f"; peaks up to {100 * share:.4g} % of the usable memory, which then does not suffice "
        f"with a chance of {100 * probability:.3g} %"
    )
