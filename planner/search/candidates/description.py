"""The searched space in words: over what the optimality of a plan is claimed."""

from automap.planner.cost.generation.streaming import TAILS
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
    return text
