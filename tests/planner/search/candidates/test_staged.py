"""Pricing in two stages: bounds below every price, and the plan of pricing everything."""

import numpy as np
import pytest

from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan, make_plan_of
from automap.planner.search.candidates.tabulate import Candidates, price_candidates
from automap.planner.search.staged import can_be_staged, staged
from automap.planner.spec import JobSpec
from benchmarks import instances


def small(algorithm: str = "ppo", num_nodes: int = 40, **search: object) -> JobSpec:
    """Small models on many nodes: more range sizes than a search starts from."""
    roles = {
        "ppo": ("actor", "critic", "reference", "reward"),
        "grpo": ("actor", "reference", "reward"),
    }
    return JobSpec.model_validate(
        {
            "name": "small",
            "algorithm": algorithm,
            "cluster": {
                "pools": [
                    {
                        "name": "a100",
                        "gpu": "a100-80gb-sxm",
                        "num_nodes": num_nodes,
                        "gpus_per_node": 8,
                    }
                ]
            },
            "models": {role: {"architecture": "llama-2-7b"} for role in roles[algorithm]},
            "workload": {
                "prompts_per_iteration": 8 * num_nodes,
                "responses_per_prompt": 4 if algorithm == "grpo" else 1,
                "prompt_length": {"mean": 512, "max": 512},
                "response_length": {"mean": 512, "max": 1024},
            },
            "search": search,
        }
    )


@pytest.mark.parametrize("spec", [small(num_nodes=3), instances.safe_rlhf(16)])
def test_no_setting_is_below_the_bound_of_its_row(spec):
    candidates = Candidates(resolve(spec))
    every = [np.ones(len(copy), dtype=bool) for copy in candidates.copies]
    least, _ = candidates.least(every)
    bound = {(table.call, table.copy): table for table in least}
    tables, _ = candidates.calls()
    assert tables
    for table in tables:
        below = np.full(len(candidates.copies[table.copy]), np.inf)
        mine = bound[table.call, table.copy]
        below[mine.copy_row] = mine.seconds
        assert (below[table.copy_row] <= table.seconds).all()


@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "grpo"])
def test_the_plan_is_that_of_pricing_everything(algorithm):
    spec = small(algorithm)
    job = resolve(spec)
    whole = price_candidates(job)
    wanted = make_plan_of(job, whole, pricing_seconds=0.0)
    plan = make_plan(spec)
    assert plan.search.status == wanted.search.status == "optimal"
    assert plan.iteration_seconds == wanted.iteration_seconds
    assert [each.iteration_seconds for each in plan.alternatives] == [
        each.iteration_seconds for each in wanted.alternatives
    ]
    # Something was left out, or there is nothing to compare.
    part = staged(job).tables
    assert sum(map(len, part.calls)) < sum(map(len, whole.calls))


def test_what_needs_more_than_seconds_is_priced_at_once():
    assert can_be_staged(resolve(small()))
    for search in ({"objective": "price"}, {"generation_tail": True}, {"robust": True}):
        assert not can_be_staged(resolve(small(**search)))
