"""Rules on how many layers each pipeline stage has."""

from collections.abc import Iterator

from automap.planner.check.subject import Subject
from automap.planner.plan.types import Parallelism


def wrong_stages(subject: Subject) -> Iterator[str]:
    """Stages that the plan states otherwise than they are priced and cut."""
    job, plan = subject.job, subject.plan
    if plan.search.target is None:
        return  # of a version before stages were stated
    for copy in plan.copies:
        layers = job.models[copy.role].architecture.num_layers
        yield from _differ(f"copy {copy.id}", copy.layers_per_stage, copy.layout, layers)
    for call, copy in subject.placed_calls():
        assert call.parallelism is not None, "the references were checked"
        layers = job.models[copy.role].architecture.num_layers
        yield from _differ(f"call {call.id}", call.layers_per_stage, call.parallelism, layers)


def _differ(name: str, stated: list[int] | None, layout: Parallelism, layers: int) -> Iterator[str]:
    stages = layout.pipeline_parallel_size
    expected = _dealt(layers, stages) if layers % stages else None
    if stated != expected:
        yield f"{name} states layers_per_stage {stated}, but {layers} layers lie as {expected}"


def _dealt(layers: int, stages: int) -> list[int]:
    """The longest stage everywhere, less what the ends then have too many of, the last first.

    Where an end would be left with nothing: layers dealt round, to the middle stages from the last
    one on, the first, the last.
    """
    dealt = [-(-layers // stages)] * stages
    for number in range(sum(dealt) - layers):
        dealt[-1 if number % 2 == 0 else 0] -= 1
    if min(dealt) > 0:
        return dealt
    order = [*reversed(range(1, stages - 1)), 0, stages - 1]
    dealt = [0] * stages
    for number in range(layers):
        dealt[order[number % stages]] += 1
    return dealt
