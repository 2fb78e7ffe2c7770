"""Networks that a plan assumes: where, which, and what a quarter of one makes of the plan."""

import pytest

from automap.planner import estimate, make_plan
from automap.planner.catalogue import node_type
from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import AssumedNetwork, Plan
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import small_job

DGX_A100 = node_type("dgx-a100-80gb")


def on_a100(num_nodes: int, **link: float) -> JobSpec:
    pool = {"name": "a", "gpu": "a100", "num_nodes": num_nodes, **link}
    return small_job("grpo", cluster__pools=[pool])


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(on_a100(2))


def test_a_plan_of_two_nodes_names_the_network_that_it_assumes(plan: Plan) -> None:
    (assumed,) = plan.assumed_networks
    assert assumed.pool == "a"
    assert assumed.node == DGX_A100.name
    assert assumed.inter_node_bytes_per_second == DGX_A100.inter_node_bytes_per_second
    assert plan.assumptions[0].startswith(
        "pools.a: inter_node_bytes_per_second is not given; 25 GB"
    )
    assert f"{assumed.iteration_seconds_at_a_quarter:.4g} s instead of" in plan.assumptions[0]


def test_its_seconds_at_a_quarter_are_those_of_a_spec_that_says_so(plan: Plan) -> None:
    quarter = DGX_A100.inter_node_bytes_per_second / 4
    stated = estimate(on_a100(2, inter_node_bytes_per_second=quarter), plan.placement())
    (assumed,) = plan.assumed_networks
    assert assumed.iteration_seconds_at_a_quarter == pytest.approx(stated.iteration_seconds)
    assert assumed.iteration_seconds_at_a_quarter > plan.iteration_seconds


@pytest.mark.parametrize("spec", [on_a100(1), on_a100(2, inter_node_bytes_per_second=25e9)])
def test_nothing_is_assumed_in_one_node_or_of_a_network_that_is_given(spec: JobSpec) -> None:
    plan = make_plan(spec)
    assert plan.assumed_networks == []
    assert not any("inter_node_bytes_per_second" in line for line in plan.assumptions)


def test_nodes_that_nvlink_joins_need_no_network() -> None:
    rack = [{"name": "a", "gpu": "gb200", "num_nodes": 2}]
    plan = make_plan(small_job("grpo", cluster__pools=rack))
    assert plan.gpus_used == 8
    assert plan.assumed_networks == []


def test_the_check_finds_a_network_that_does_not_follow(plan: Plan) -> None:
    job = resolve(plan.spec)
    assert violations(job, plan) == []
    (assumed,) = plan.assumed_networks
    broken = {
        "at a quarter the plan is said to take": {
            "iteration_seconds_at_a_quarter": plan.iteration_seconds
        },
        "but dgx-a100-80gb has 2.5e+10": {"inter_node_bytes_per_second": 1e9},
        "of dgx-h100": {"node": "dgx-h100"},
        "is not left to the catalogue": {"pool": "b"},
    }
    for message, changes in broken.items():
        other: AssumedNetwork = assumed.model_copy(update=changes)
        found = violations(job, plan.model_copy(update={"assumed_networks": [other]}))
        assert message in "; ".join(found), message
