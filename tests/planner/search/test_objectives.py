"""The prices of an iteration and of a whole run, against planning on every number of nodes."""

from typing import Any

import pytest

from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec, SearchSpec
from tests.helpers.small_jobs import pool, small_job

TIGHT: dict[str, Any] = {
    "models": {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")},
    "workload__response_length": {"mean": 2000, "max": 8000},
    "workload__startup_seconds": 1e6,
    "cluster__pools": [pool(2, gpus_per_node=2)],
    "constraints__allow_offload": False,
    "search__max_out_of_memory_probability": 1,
}
"""On one node it must recompute: an iteration is dearer there than on two."""


def tight(objective: str, free: int = 0) -> JobSpec:
    kept = {"a100": free} if free else {}
    return small_job("rloo", **TIGHT, search__objective=objective, constraints__keep_free_gpus=kept)


@pytest.mark.slow
def test_each_price_picks_the_nodes_on_which_it_is_least() -> None:
    fastest = [make_plan(tight("throughput", free)) for free in (0, 2)]

    def cheapest(value: str) -> Plan:
        return min(fastest, key=lambda plan: float(getattr(plan, value)))

    for objective, value in (("price", "price_per_iteration"), ("run_price", "run_price")):
        plan, expected = make_plan(tight(objective)), cheapest(value)
        assert plan.gpus_used == expected.gpus_used
        assert getattr(plan, value) == pytest.approx(getattr(expected, value))
        assert plan.search.objective_value == pytest.approx(getattr(plan, value))
        assert plan.search.status == "optimal"
        assert plan.relative_gap == 0
    assert cheapest("price_per_iteration").gpus_used == 4
    assert cheapest("run_price").gpus_used == 2


@pytest.mark.parametrize(
    ("given", "own"),
    [
        ("time", "throughput"),
        ("price_per_iteration", "price"),
        ("price_per_million_tokens", "price"),
        ("price_of_run", "run_price"),
        ("run_price", "run_price"),
    ],
)
def test_other_names_of_objectives(given: str, own: str) -> None:
    search = SearchSpec.model_validate({"objective": given})
    assert search.objective == own
    assert search.model_dump()["objective"] == own
    assert given in SearchSpec.model_json_schema()["properties"]["objective"]["enum"]
