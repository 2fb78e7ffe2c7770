"""No number of a plan escapes the check: each one is changed, alone, and the change is found."""

from collections.abc import Iterator
from typing import Any

import pytest

from automap.planner.check.check import violations
from automap.planner.job.job import Job
from automap.planner.plan.types import Plan
from tests.planner.check.broken_plans import BARRIER_JOB, BARRIER_PLAN, CYCLIC_JOB, CYCLIC_PLAN

pytestmark = pytest.mark.thorough

FREE = {
    # How the search went, and what it could have done instead: not the plan.
    "search_seconds",
    "search.pricing_seconds",
    "search.solving_seconds",
    "search.candidates_priced",
    "search.options",
    # A weaker bound is still a bound.
    "lower_bound_seconds",
    "schema_version",
}
Path = tuple[str | int, ...]


def numbers(value: Any, path: Path = ()) -> Iterator[tuple[Path, int | float]]:
    """(path, number) of every number in nested data; the spec is compared as a whole."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if path or name not in ("spec", "provenance"):
                yield from numbers(inner, (*path, name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from numbers(inner, (*path, position))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def changed(plan: Plan, path: Path, value: int | float) -> Plan:
    """The plan with another number at a path, past all validation."""
    if not path:
        return value  # type: ignore[return-value]
    inner: Any = plan[path[0]] if isinstance(path[0], int) else getattr(plan, path[0])  # type: ignore[index]
    replaced = changed(inner, path[1:], value)
    if isinstance(path[0], int):
        return [*plan[: path[0]], replaced, *plan[path[0] + 1 :]]  # type: ignore[index,return-value]
    return plan.model_copy(update={path[0]: replaced})


def escaped(job: Job, plan: Plan, factor: float) -> list[str]:
    """Paths of the numbers that could be multiplied (0: become 1) without a violation."""
    found = []
    for path, number in numbers(plan.model_dump()):
        name = ".".join(map(str, path))
        other = (number * factor if isinstance(number, float) else number + 1) or 1
        if name not in FREE and not violations(job, changed(plan, path, other)):
            found.append(name)
    return found


@pytest.mark.slow
def test_every_number_of_a_barrier_plan_is_checked() -> None:
    assert escaped(BARRIER_JOB, BARRIER_PLAN, 0.999) == []


@pytest.mark.slow
def test_every_number_of_a_cyclic_plan_is_checked() -> None:
    assert escaped(CYCLIC_JOB, CYCLIC_PLAN, 1.001) == []
