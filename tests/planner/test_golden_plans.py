"""Every example's fastest plan, to nine digits: placement, schedule, prices, bound.

A change of the search or of the code's structure leaves them as they are. One that changes the
space or a price on purpose records them anew, and raises COST_MODEL_VERSION:

    python -m tests.planner.test_golden_plans
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap import JobSpec, Plan, make_plan

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "plans.json"
SLOW = {"safe-rlhf-two-critics-70b-128xa100"}
EFFORT = ("candidates_priced", "options")
"""How much was looked at, which a leaner search changes without changing a plan."""
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
    """The plan's numbers that a reader compares, and a digest of all but provenance and effort."""
    plan = example_plan(name).model_dump(mode="json")
    for field in ("provenance", "search_seconds", "assumptions"):
        plan.pop(field)
    for field in ("pricing_seconds", "solving_seconds", "proof", "space", *EFFORT):
        plan["search"].pop(field)
    assert plan["spec"]["search"].pop("simplicity_tolerance") == 0
    assert plan["search"].pop("within_tolerance") is None
    text = json.dumps(_rounded(plan), sort_keys=True)
    return {
        "iteration_seconds": _rounded(plan["iteration_seconds"]),
        "lower_bound_seconds": _rounded(plan["lower_bound_seconds"]),
        "gpus_used": plan["gpus_used"],
        "status": plan["search"]["status"],
        "runs_with": plan["runs_with"],
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


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


def test_every_example_is_recorded() -> None:
    assert sorted(json.loads(GOLDEN.read_text("utf-8"))) == EXAMPLES


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: summary(name) for name in EXAMPLES}, indent=1) + "\n")
