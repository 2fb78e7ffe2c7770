"""Named strategies on whole jobs: their plans pass the check, keep their rules, and never win."""

from functools import cache
from typing import get_args

import pytest

from automap.planner.check.check import violations
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CopyPlan, Plan
from automap.planner.planning import STRATEGIES, compare, make_plan
from automap.planner.spec import JobSpec, StrategyName
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

SEARCH = {"search__time_limit_seconds": 0.1, "search__limit_by": "work"}
"""1,000 steps of the Markov chain, on a busy machine too; the search itself needs less."""
ASYNCHRONOUS = ("one_step_off", "fully_async")
ON_POLICY = tuple(name for name in STRATEGIES if name not in ASYNCHRONOUS)


STACK = {"workload__training_stack": "megatron-core"}
"""Named, since a strategy is placed for any target, whose default it is, and a plan for automap."""


@cache
def job(algorithm: str = "ppo", staleness: int = 0) -> JobSpec:
    late = {"search__staleness": staleness} if staleness else {}
    return small_job(algorithm, num_nodes=2, **SEARCH, **STACK, **late)


@cache
def plan_by(name: str, algorithm: str = "ppo", staleness: int = 0) -> Plan:
    spec = job(algorithm, staleness)
    search = spec.search.model_copy(update={"strategy": name})
    return make_plan(spec.model_copy(update={"search": search}))


@cache
def optimum(algorithm: str = "ppo", staleness: int = 0) -> Plan:
    spec = job(algorithm, staleness)
    search = spec.search.model_copy(update={"time_limit_seconds": 30.0})
    return make_plan(spec.model_copy(update={"search": search}))


def homes(plan: Plan) -> dict[str, CopyPlan]:
    return {copy.role: copy for copy in plan.copies if copy.kind == "home"}


def shadows(plan: Plan) -> list[CopyPlan]:
    return [copy for copy in plan.copies if copy.kind == "shadow"]


def gpus(copy: CopyPlan) -> set[int]:
    return set(range(copy.first_gpu, copy.first_gpu + copy.num_gpus))


def test_the_spec_names_every_strategy() -> None:
    assert get_args(StrategyName) == tuple(STRATEGIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_POLICY)
def test_every_strategy_makes_a_plan_that_the_optimum_is_no_slower_than(name: str) -> None:
    plan = plan_by(name)
    assert list(violations(resolve(plan.spec), plan)) == []
    assert (plan.search.status, plan.search.strategy) == ("given", name)
    assert plan.alternatives == []
    assert optimum().search.status == "optimal"
    assert plan.iteration_seconds >= optimum().iteration_seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", ["rlinf", "real_mcmc", *ASYNCHRONOUS])
@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "grpo"])
def test_strategies_of_overlapping_iterations_never_beat_the_optimum(
    name: str, algorithm: str
) -> None:
    plan, best = plan_by(name, algorithm, 1), optimum(algorithm, 1)
    assert list(violations(resolve(plan.spec), plan)) == []
    assert best.search.status == "optimal"
    assert plan.iteration_seconds >= best.iteration_seconds * (1 - 1e-9)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_asynchronous_halves_are_refused_on_policy(name: str) -> None:
    with pytest.raises(InfeasibleError, match="job allows 0") as caught:
        plan_by(name)
    assert "hybridflow" in (caught.value.reasons[0].remedy or "")


def test_a_strategy_on_a_job_that_fits_nowhere_explains_the_job_in_numbers() -> None:
    large = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")}
    spec = small_job(models=large, cluster__pools=[pool(gpus_per_node=1)], search__target="any")
    with pytest.raises(InfeasibleError) as plain:
        make_plan(spec)
    search = spec.search.model_copy(update={"strategy": "standalone"})
    with pytest.raises(InfeasibleError) as caught:
        make_plan(spec.model_copy(update={"search": search}))
    own, *rest = caught.value.reasons
    assert own.remedy is None
    assert rest == plain.value.reasons
    assert any(reason.over_bytes for reason in rest)


def test_a_strategy_beside_a_target_is_refused() -> None:
    search = {"objective": "fewest_gpus", "target_iteration_seconds": 60.0, "strategy": "split"}
    spec = job().model_copy(update={"search": job().search.model_copy(update=search)})
    with pytest.raises(SpecError, match=r"split .*target_iteration_seconds, 60 s") as caught:
        make_plan(spec)
    assert caught.value.field == "search.strategy"


@pytest.mark.parametrize("name", ["deepspeed_chat", "openrlhf", "app_interleaving"])
def test_zero3_strategies_shard_fully_and_do_nothing_else(name: str) -> None:
    for copy in homes(plan_by(name)).values():
        sizes = copy.layout
        assert sizes.data_parallel_size == copy.num_gpus
        assert sizes.sharding == ("full" if copy.num_gpus > 1 else "none")


def test_nemo_aligner_generates_with_the_sizes_of_training() -> None:
    plan = plan_by("nemo_aligner")
    actor = homes(plan)["actor"].layout
    (engine,) = (call.parallelism for call in plan.calls if call.kind == "generate")
    assert engine is not None
    assert engine.tensor_parallel_size == actor.tensor_parallel_size
    assert engine.pipeline_parallel_size == actor.pipeline_parallel_size
    assert gpus(homes(plan)["actor"]) == gpus(homes(plan)["reference"])
    assert not gpus(homes(plan)["actor"]) & gpus(homes(plan)["critic"])


def test_verl_and_deepspeed_chat_colocate_all() -> None:
    for name in ("verl", "deepspeed_chat"):
        assert {(copy.first_gpu, copy.num_gpus) for copy in plan_by(name).copies} == {(0, 8)}


@pytest.mark.parametrize("name", ["openrlhf", "app_separation"])
def test_models_apart_and_rollouts_too(name: str) -> None:
    plan = plan_by(name)
    assert len(shadows(plan)) == 1
    taken = [gpu for copy in plan.copies for gpu in gpus(copy)]
    assert len(taken) == len(set(taken))


def test_app_separation_scores_in_one_tensor_group() -> None:
    for role in ("reference", "reward"):
        copy = homes(plan_by("app_separation"))[role]
        assert copy.layout.tensor_parallel_size == copy.num_gpus


def test_app_interleaving_trains_on_all_and_scores_on_halves() -> None:
    found = homes(plan_by("app_interleaving"))
    assert gpus(found["actor"]) == gpus(found["critic"]) == set(range(8))
    assert gpus(found["reference"]) == set(range(4))
    assert gpus(found["reward"]) == set(range(4, 8))


def test_real_heuristic_generates_on_all_and_trains_side_by_side() -> None:
    plan = plan_by("real_heuristic")
    (shadow,) = shadows(plan)
    assert gpus(shadow) == gpus(homes(plan)["reference"]) == set(range(8))
    assert gpus(homes(plan)["actor"]) == set(range(4))
    assert gpus(homes(plan)["critic"]) == set(range(4, 8))
    layout = homes(plan)["actor"].layout
    assert (layout.tensor_parallel_size, layout.data_parallel_size) == (2, 2)


@pytest.mark.slow
def test_asynchronous_halves_keep_rollouts_apart() -> None:
    for name in ASYNCHRONOUS:
        plan = plan_by(name, "ppo", 1)
        (shadow,) = shadows(plan)
        assert not gpus(shadow) & gpus(homes(plan)["actor"])
        with_rollouts = gpus(homes(plan)["reward"]) == gpus(shadow)
        assert with_rollouts == (name == "fully_async")


def test_compare_shows_what_each_strategy_claims() -> None:
    best = optimum()
    names = ["hybridflow", "rlinf", "real_mcmc", "app_interleaving", "one_step_off"]
    compared = {each.name: each for each in compare(job(), best, names)}
    assert list(compared) == names
    for name in ("hybridflow", "rlinf", "real_mcmc"):
        assert compared[name].claimed_seconds is not None
        assert compared[name].claimed_seconds > 0
        assert compared[name].iteration_seconds == plan_by(name).iteration_seconds
    assert compared["app_interleaving"].claimed_seconds is None
    assert not compared["one_step_off"].feasible
    assert compared["one_step_off"].placement is None
    assert list(compare(job(), best, names)) == list(compared.values())


def test_plan_requests_run_the_quick_strategies_alone() -> None:
    assert {each.name for each in optimum().alternatives} == {
        "colocate_all",
        "split",
        "standalone",
        "hybridflow",
    }
