"""Jobs that fit nowhere: the call and the bytes, and remedies that really help."""

import re
import time
from typing import Any

import pytest

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, Reason
from automap.planner.infeasible import remedies
from automap.planner.infeasible.changes import smaller_rollout
from automap.planner.infeasible.remedies import FeasibilityProbe
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.search.strategies import STRATEGIES
from automap.planner.search.strategies.attempts import attempted
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

SEVEN = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reference", "reward")}
ONE_GPU: dict[str, Any] = {"models": SEVEN, "cluster__pools": [pool(gpus_per_node=1)]}
ONE_GPU_POOL: dict[str, Any] = {"cluster__pools": [pool(gpus_per_node=1)]}
LONG: dict[str, Any] = {
    "models": SEVEN,
    "cluster__pools": [pool(gpus_per_node=2)],
    "workload__response_length": {"mean": 2000, "max": 8000},
    "constraints": {"allow_offload": False, "allow_recompute": False},
    "search__max_out_of_memory_probability": 1,
}


@pytest.fixture
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amounts are the smallest only where a busy machine finds them in time."""
    monkeypatch.setattr("automap.planner.infeasible.reasons.REMEDY_SECONDS", 120.0)


def reasons(spec: JobSpec) -> list[Reason]:
    with pytest.raises(InfeasibleError) as error:
        make_plan(spec)
    return error.value.reasons


def remedy(spec: JobSpec, start: str) -> str:
    (found,) = [r.remedy for r in reasons(spec) if r.remedy and r.remedy.startswith(start)]
    return found


def test_the_first_reason_names_the_call_and_its_bytes() -> None:
    """Training 7B with Adam holds 16 bytes per parameter or more: over 100 GiB on one GPU."""
    first = reasons(small_job(**ONE_GPU))[0]
    assert first.phase == "actor.train"
    assert first.required_bytes is not None
    assert first.required_bytes > 16 * 6.7e9
    assert first.over_bytes is not None
    assert first.over_bytes > 0
    assert first.capacity_bytes == first.required_bytes - first.over_bytes
    assert "actor.train" in first.summary


def test_a_slow_reward_function_hides_no_remedy() -> None:
    """What it takes is not memory: the search for memory once ended after a second of calls."""
    slow = {"function": True, "seconds_per_response": 5.0}
    models = {"actor": {"architecture": "llama-2-7b"}, "reward": slow}
    spec = small_job(models=models, algorithm="grpo", workload__kl="none", **ONE_GPU_POOL)
    found = reasons(spec)
    assert found[0].over_bytes is not None
    assert found[0].over_bytes > 0
    assert any(reason.remedy and "GPUs" in reason.remedy for reason in found), found


@pytest.mark.slow
@pytest.mark.usefixtures("time_enough")
def test_the_gpus_that_are_asked_for_are_enough_and_one_node_less_is_not() -> None:
    spec = small_job(**ONE_GPU)
    nodes = int(re.search(r"(\d+) nodes", remedy(spec, "add")).group(1))  # type: ignore[union-attr]
    assert nodes > 1
    for number, fits in ((nodes, True), (nodes - 1, False)):
        larger = small_job(models=SEVEN, cluster__pools=[pool(number, gpus_per_node=1)])
        if fits:
            assert make_plan(larger).iteration_seconds > 0
        else:
            assert reasons(larger)


@pytest.mark.slow
@pytest.mark.usefixtures("time_enough")
def test_the_shorter_response_is_short_enough() -> None:
    longest, mean = map(int, re.findall(r"\d+", remedy(small_job(**LONG), "shorten")))
    shorter = LONG | {"workload__response_length": {"mean": mean, "max": longest}}
    assert make_plan(small_job(**shorter)).iteration_seconds > 0
    longer = LONG | {"workload__response_length": {"mean": mean, "max": longest + 64}}
    assert reasons(small_job(**longer))


@pytest.mark.slow
def test_the_shorter_response_does_not_depend_on_the_one_that_was_asked_for() -> None:
    """It is the longest of the round numbers that fit, so within 1 % of the longest of all."""

    def longest(most: int) -> int:
        lengths = {"p50": 500, "p90": 1500, "p99": 2000, "max": most}
        spec = small_job(**LONG | {"workload__response_length": lengths})
        (change,) = FeasibilityProbe().shorter_responses(spec)
        return change.spec.workload.response_length.max_tokens

    assert longest(40_000) == longest(70_001)


@pytest.mark.slow
@pytest.mark.usefixtures("time_enough")
def test_recomputation_and_lora_help_where_they_are_proposed() -> None:
    assert remedy(small_job(**LONG), "allow recomputation")
    allowed = LONG | {"constraints": {"allow_offload": False}}
    assert make_plan(small_job(**allowed)).iteration_seconds > 0
    assert "rank: 16" in remedy(small_job(**ONE_GPU), "train adapters")
    adapted = ONE_GPU | {"models": SEVEN | {"actor": SEVEN["actor"] | {"lora": {"rank": 16}}}}
    assert make_plan(small_job(**adapted)).iteration_seconds > 0


def test_a_call_without_a_candidate_is_never_taken_for_a_function() -> None:
    """Every other call fits on the one GPU: no baseline may come with a training of 0 s."""
    job = resolve(small_job(**ONE_GPU))
    tables = price_candidates(job)
    attempts = attempted(SearchSpace.of(job, tables), list(STRATEGIES), Limits.within(0.1, seed=0))
    assert attempts
    assert all(each.selected is None and each.reason for each in attempts)


@pytest.mark.slow
def test_models_far_too_large_for_the_cluster_are_explained() -> None:
    roles = ("actor", "critic", "reference", "reward")
    models = {role: {"architecture": "llama-3.1-405b"} for role in roles}
    found = reasons(small_job("ppo", models=models))
    assert found[0].over_bytes is not None
    assert found[0].over_bytes > 0
    assert any(reason.remedy and reason.remedy.startswith("add") for reason in found)


@pytest.mark.slow
def test_constraints_that_exclude_each_other_only_in_the_end() -> None:
    parted = small_job(
        cluster__pools=[pool(gpus_per_node=1)], constraints={"separate": [("actor", "reference")]}
    )
    first, *others = reasons(parted)
    assert "constraints.separate" in first.summary
    assert first.over_bytes is None
    assert "leave out constraints.separate" in [reason.remedy for reason in others]
    assert make_plan(small_job(cluster__pools=[pool(gpus_per_node=1)])).iteration_seconds > 0


@pytest.mark.slow
@pytest.mark.usefixtures("time_enough")
def test_gpus_that_are_kept_free_are_given_up_only_as_far_as_needed() -> None:
    def keeping(count: int) -> JobSpec:
        return small_job(models=SEVEN, constraints__keep_free_gpus={"a100": count})

    most = int(re.findall(r"\d+", remedy(keeping(3), "set constraints.keep_free_gpus.a100"))[1])
    assert 0 < most < 3
    assert make_plan(keeping(most)).gpus_used == 4
    assert reasons(keeping(most + 1))


def test_the_call_that_cannot_even_run_alone_is_blamed_not_the_one_beside_it() -> None:
    """Of 405B on 16 GPUs training holds over 400 GiB a GPU; the reference would fit alone."""
    large = {"architecture": "llama-3.1-405b"}
    pools = [pool(2, gpus_per_node=8)]
    models = {"actor": large, "reference": large, "reward": {"function": True}}
    causes = [r for r in reasons(small_job(models=models, cluster__pools=pools)) if r.phase]
    assert [reason.phase for reason in causes] == ["actor.train"]
    assert causes[0].required_bytes is not None
    assert causes[0].required_bytes > 16 * 405e9 / 16
    frozen = {**models, "actor": SEVEN["actor"]}
    assert make_plan(small_job(models=frozen, cluster__pools=pools)).iteration_seconds > 0


@pytest.mark.slow
def test_every_call_that_cannot_run_alone_is_told_also_those_of_one_model() -> None:
    """On 4 GiB more GPUs would save the training, but only larger ones save the rollout."""
    small_model = {"architecture": "qwen2.5-0.5b"}
    models = {"actor": SEVEN["actor"], "reference": small_model, "reward": small_model}
    small = {"models": models, "cluster__pools": [pool(gpu="cpu")]}
    told = reasons(small_job(**small, search__max_out_of_memory_probability=1))
    causes = [reason for reason in told if reason.phase]
    assert [reason.phase for reason in causes] == ["actor.train", "actor.generate"]
    assert causes[0].over_bytes is not None
    assert causes[1].over_bytes is not None
    assert causes[0].over_bytes > causes[1].over_bytes > 0
    remedies = [reason.remedy for reason in told if reason.remedy]
    assert any("in pool a100, cpu now" in remedy for remedy in remedies)


@pytest.mark.slow
def test_models_that_fit_alone_but_not_together_are_told_so() -> None:
    models = dict.fromkeys(("actor", "critic", "reference", "reward"), SEVEN["actor"])
    cluster = {"cluster__pools": [pool(gpus_per_node=2)], "constraints__allow_offload": False}
    first = reasons(small_job("ppo", models=models, **cluster))[0]
    assert "beside the other models" in first.summary
    assert first.over_bytes is not None
    assert first.over_bytes > 0


@pytest.mark.slow
@pytest.mark.usefixtures("time_enough")
def test_where_no_single_change_helps_that_is_said_with_what_helps_together() -> None:
    """70B on one GPU: more of them are forbidden, and on four only recomputation saves it."""
    models = {**SEVEN, "actor": {"architecture": "llama-2-70b", "lora": {"rank": 16}}}
    lengths = {"mean": 2000, "max": 32000}
    pinned = {"parallelism": {"actor": {"num_gpus": 1}}}
    forbidden = pinned | {"allow_offload": False, "allow_recompute": False}

    def job(constraints: dict[str, Any]) -> JobSpec:
        return small_job(models=models, workload__response_length=lengths, constraints=constraints)

    *causes, last = reasons(job(forbidden))
    assert [reason.phase for reason in causes] == ["actor.train"]
    assert "no single change makes it fit" in last.summary
    assert last.remedy is not None
    for part in ("allow_recompute: true", "leave out constraints.parallelism"):
        assert part in last.remedy
    assert make_plan(job({})).iteration_seconds > 0


@pytest.mark.slow
def test_where_nothing_helps_that_is_said_soon() -> None:
    """Prompts of ten million tokens fit on no number of GPUs that is worth trying."""
    endless = {"mean": 1000, "max": 10**7}
    lengths = {"workload__prompt_length": endless, "workload__response_length": endless}
    spec = small_job(models=SEVEN, **lengths)
    started = time.perf_counter()
    *causes, last = reasons(spec)
    assert time.perf_counter() - started < 8
    # Nothing splits one sequence that is generated; one that trains is split over a node.
    assert [cause.phase for cause in causes[:2]] == ["actor.generate", "actor.train"]
    assert "nor do these together" in last.summary
    assert last.remedy is None


@pytest.mark.slow
def test_a_huge_maximum_is_refused_soon_with_the_longest_that_fits() -> None:
    endless = {"mean": 1000, "max": 10**7}
    spec = small_job(models=SEVEN, workload__response_length=endless)
    started = time.perf_counter()
    longest, mean = map(int, re.findall(r"\d+", remedy(spec, "shorten")))
    assert time.perf_counter() - started < 8
    shorter = {"mean": mean, "max": longest}
    assert make_plan(small_job(models=SEVEN, workload__response_length=shorter)).run_seconds > 0


@pytest.mark.slow
def test_a_target_that_no_plan_meets_says_which_one_would() -> None:
    goal: dict[str, Any] = {"search__objective": "fewest_gpus", "num_nodes": 2}
    (reason,) = reasons(small_job(**goal, search__target_iteration_seconds=0.5))
    assert reason.over_bytes is None
    assert reason.remedy is not None
    reachable = float(re.search(r"to ([\d.]+)", reason.remedy).group(1))  # type: ignore[union-attr]
    plan = make_plan(small_job(**goal, search__target_iteration_seconds=reachable))
    assert plan.iteration_seconds <= reachable
    assert reachable - plan.iteration_seconds < 0.01


def test_a_pricing_cut_short_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it said of such a change that it does not help."""
    spec = small_job()
    assert FeasibilityProbe().fits(spec)

    def cut(*_: Any, **__: Any) -> None:
        raise NoSolutionInTimeError(0.0, pricing=True)

    monkeypatch.setattr(remedies, "price_candidates", cut)
    probe = FeasibilityProbe(deadline=time.process_time() + 60)
    assert not probe.overdue
    assert not probe.fits(spec)
    assert probe.overdue
    (told,) = remedies.remedies(spec, probe)
    assert "not all were tried" in told.summary


def test_fewer_bits_are_proposed_where_the_target_makes_them() -> None:
    """8 bits before 4, and 4 bits only where the target makes them from training's weights."""

    def proposed(gpu: str, target: str, given: str | None = None) -> list[str | None]:
        spec = small_job(
            cluster__pools=[pool(gpu=gpu)],
            search__target=target,
            workload__rollout_precision=given,
        )
        return [each.spec.workload.rollout_precision for each in smaller_rollout(spec)]

    assert proposed("h100-80gb-sxm", "automap") == ["fp8"]
    assert proposed("h100-80gb-sxm", "automap", "fp8") == []
    assert proposed("h100-80gb-sxm", "any") == ["fp8", "int4"]
    assert proposed("gb200", "any") == ["fp8", "nvfp4"]
    assert proposed("gb200", "any", "fp8") == ["nvfp4"]
    assert proposed("gb200", "any", "int4") == []
    assert proposed("a100-80gb-sxm", "any") == ["int4"]
    assert proposed("a100-80gb-sxm", "automap") == []
