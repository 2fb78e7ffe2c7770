"""Every example's fastest plan, to nine digits: placement, schedule, prices, bound.

A change of the search or of the code's structure leaves them as they are. One that changes the
space or a price on purpose records them anew, and raises COST_MODEL_VERSION:

    python -m tests.planner.test_golden_plans
"""

import hashlib
import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap import JobSpec, Plan, make_plan
from tests.helpers.small_jobs import small_job

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plans.json"
SLOW = {"safe-rlhf-two-critics-70b-128xa100"}
NOT_PLANNED = {"spec", "provenance", "search_seconds", "assumptions"}
EFFORT = {
    "pricing_seconds",
    "solving_seconds",
    "proof",
    "space",
    "candidates_priced",
    "options",
    "within_tolerance",
}
"""How much was looked at, and how long, which a leaner search changes without changing a plan."""
DIGITS = 9
"""Significant digits of a number that are recorded: the last bits are the processor's, as libraries
of numbers choose their instructions by it."""
LEFT_OUT = {"agents-12-models-512xh100", "tiny-own-algorithm-cpu"}
"""The first is cut by its time limit; the second needs its own algorithm's file."""
EXAMPLES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.yaml")
    if not path.name.endswith(".run.yaml") and path.stem not in LEFT_OUT
)


def example_plan(name: str) -> Plan:
    """An example's plan, searched by work rather than by the clock, so that it repeats."""
    document = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text("utf-8"))
    search = {"limit_by": "work", "simplicity_tolerance": 0}
    document["search"] = {**document.get("search", {}), **search}
    return make_plan(JobSpec.model_validate(document))


def summary(name: str) -> dict[str, Any]:
    """The plan's numbers that a reader compares, and a digest of all that is planned."""
    plan = example_plan(name).model_dump(mode="json")
    assert plan["search"]["within_tolerance"] is None
    return {
        "iteration_seconds": _rounded(plan["iteration_seconds"]),
        "lower_bound_seconds": _rounded(plan["lower_bound_seconds"]),
        "gpus_used": plan["gpus_used"],
        "status": plan["search"]["status"],
        "runs_with": plan["runs_with"],
        "sha256": digest(plan),
    }


def digest(plan: dict[str, Any]) -> str:
    """Of the plan's document, without what was asked (the example says it), effort and provenance.

    A field that specs gain is no other plan; one that changes a plan shows in its numbers.
    """
    kept = {name: each for name, each in plan.items() if name not in NOT_PLANNED}
    kept["search"] = {name: each for name, each in plan["search"].items() if name not in EFFORT}
    return hashlib.sha256(json.dumps(_rounded(kept), sort_keys=True).encode()).hexdigest()


def _rounded(value: Any) -> Any:
    """The document with every number of at most so many digits."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in EXAMPLES],
)
def test_the_plan_is_the_recorded_one(name: str) -> None:
    assert summary(name) == json.loads(GOLDEN.read_text("utf-8"))[name]


@cache
def small_plan() -> dict[str, Any]:
    return make_plan(small_job("rloo")).model_dump(mode="json")


def test_what_a_spec_gains_is_no_other_plan() -> None:
    plan = deepcopy(small_plan())
    plan["spec"]["workload"]["a_field_of_tomorrow"] = False
    assert digest(plan) == digest(small_plan())


def test_every_number_that_is_planned_is_recorded() -> None:
    """Each number and word of the plan changes the digest, but for what is left out by name."""
    left_out = {("search", name) for name in EFFORT} | {(name,) for name in NOT_PLANNED}
    plan = deepcopy(small_plan())
    recorded, changed = digest(plan), 0
    for path, value in list(_leaves(plan)):
        if path[:1] in left_out or path[:2] in left_out:
            continue
        at: Any = plan
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = 2 * value + 1 if isinstance(value, int | float) else f"not {value}"
        assert digest(plan) != recorded, path
        at[path[-1]] = value
        changed += 1
    assert changed > 100


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number and word of a document, with the keys that lead to it."""
    if isinstance(value, dict | list):
        for step, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(each, (*path, step))
    else:
        yield path, value


def test_every_example_is_recorded() -> None:
    assert sorted(json.loads(GOLDEN.read_text("utf-8"))) == EXAMPLES


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: summary(name) for name in EXAMPLES}, indent=1) + "\n")
