"""What each change to a job brings: the plan of the changed job, beside the job's own."""

from typing import Any

import pytest

from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.levers import Levers, changes, levers
from tests.helpers.small_jobs import pool, small_job

GRPO = small_job(
    models={
        "actor": {"architecture": "qwen2.5-1.5b"},
        "reference": {"architecture": "qwen2.5-1.5b"},
        "reward": {"function": True},
    },
    cluster__pools=[pool(2, gpu="h100-80gb-sxm", name="h100")],
    constraints__allow_recompute=False,
    search__staleness=0,
)


@pytest.fixture(scope="module")
def found() -> Levers:
    return levers(GRPO, "automap")


@pytest.mark.slow
def test_every_kind_of_change_is_solved_and_what_gains_most_comes_first(found: Levers) -> None:
    assert found.plan is not None
    kinds = {each.kind for each in found.levers}
    assert kinds >= {"asynchrony", "loss", "precision", "permission", "adapters", "nodes", "gpu"}
    gains = [each.gain for each in found.levers if each.gain is not None]
    assert gains == sorted(gains, reverse=True)
    assert len({each.text for each in found.levers}) == len(found.levers)


@pytest.mark.parametrize(
    ("words", "section", "field", "value"),
    [
        ("(search.staleness: 1)", "search", "staleness", 1),
        ("rollout_precision: fp8", "workload", "rollout_precision", "fp8"),
        ("allow_recompute: true", "constraints", "allow_recompute", True),
    ],
)
def test_a_gain_is_that_of_the_changed_jobs_own_plan(
    found: Levers, words: str, section: str, field: str, value: object
) -> None:
    (lever,) = (each for each in found.levers if words in each.text)
    search = {"target": "automap", "simplicity_tolerance": 0.0}
    document = GRPO.model_dump(by_alias=True)
    document["search"] |= search
    document[section][field] = value
    plan = make_plan(JobSpec.model_validate(document))
    assert found.plan is not None
    assert lever.iteration_seconds == plan.iteration_seconds
    assert lever.gain == pytest.approx(1 - plan.iteration_seconds / found.plan.iteration_seconds)
    assert lever.proven


def test_older_rollouts_and_such_as_never_drain_are_tried() -> None:
    def tried(**search: Any) -> list[str]:
        spec = GRPO.model_copy(update={"search": GRPO.search.model_copy(update=search)})
        return [change.text for kind, change in changes(spec) if kind == "asynchrony"]

    assert len(tried()) == 2
    assert "staleness: 1" in tried()[0]
    assert "continuous_rollouts: true, staleness: 4" in tried()[1]
    assert "staleness: 4" in tried(staleness=2)[0]
    flowing = tried(staleness=8, continuous_rollouts=True)
    assert len(flowing) == 1
    assert "keep_cache_at_sync: true" in flowing[0]


def test_losses_with_fewer_passes_are_tried_where_there_are_such_passes() -> None:
    def tried(**given: Any) -> list[JobSpec]:
        return [each.spec for kind, each in changes(small_job(**given)) if kind == "loss"]

    pinned = {"reference": {"tensor_parallel_size": 2}, "actor": {"tensor_parallel_size": 2}}
    old, reference = tried(workload__kl="reward", constraints__parallelism=pinned)
    assert old.workload.old_log_probs == "rollout"
    assert (reference.workload.kl, "reference" in reference.models) == ("none", False)
    assert set(reference.constraints.parallelism) == {"actor"}
    models = {"actor": {"architecture": "llama-2-7b"}, "reward": {"function": True}}
    assert tried(models=models, workload__kl="none", workload__old_log_probs="rollout") == []


def test_half_the_nodes_are_slower_and_twice_are_faster(found: Levers) -> None:
    gains = {each.text: each.gain for each in found.levers if each.kind == "nodes"}
    half, twice = gains["use 1 nodes in pool h100, 2 now"], gains["use 4 nodes in pool h100, 2 now"]
    assert half is not None
    assert twice is not None
    assert half < 0 < twice


@pytest.mark.slow
def test_what_the_target_cannot_run_is_no_lever(found: Levers) -> None:
    """The executor generates with vLLM, and trains in 16 bits; every engine can be priced."""
    assert not any("rollout_engine" in each.text for each in found.levers)
    free = levers(GRPO, "any")
    assert sum("rollout_engine" in each.text for each in free.levers) == 2


def test_a_job_without_a_plan_says_why() -> None:
    large = GRPO.model_copy(
        update={
            "models": {
                **GRPO.models,
                "actor": GRPO.models["actor"].model_copy(update={"architecture": "llama-3.1-405b"}),
            }
        }
    )
    found = levers(large, "automap")
    assert found.plan is None
    assert "GiB" in found.reason
    assert found.levers == []
