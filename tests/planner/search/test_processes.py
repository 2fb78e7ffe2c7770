"""Models of one process: the best plan in which they share engine and sizes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.exports.exporting import export
from automap.planner.job.resolution import resolve
from automap.planner.plan.runs_with import refusals
from automap.planner.planning import make_plan
from automap.planner.search import search
from automap.planner.search.candidates.tables import FREE, Tables
from automap.planner.search.candidates.tabulate import price_candidates
from automap.planner.search.model.solve import Limits
from automap.planner.search.objectives import SearchResult
from automap.planner.search.search import solve
from automap.planner.search.space.processes import ProcessSpaces, of_process, shared_by
from automap.planner.search.space.search_space import SearchSpace
from automap.planner.targets.verl import VERL
from tests.helpers.small_jobs import pool, small_job

LIMITS = Limits(30.0)
ONE_RESPONSE = {"workload__responses_per_prompt": 1}


def verl_job(algorithm: str = "ppo", **changes: Any) -> Any:
    pools = [pool(2, gpu="h100-80gb-sxm")]
    changes = {"cluster__pools": pools, "search__target": VERL.name, **changes}
    return small_job(algorithm, **changes)


def without_processes(tables: Tables) -> Tables:
    copies = [replace(copy, process=None) for copy in tables.copies]
    calls = [replace(call, process=None) for call in tables.calls]
    return replace(tables, copies=copies, calls=calls)


def masks_of(tables: list[Any]) -> list[dict[int, Any]]:
    """Per row that tables of copies, or of calls, may have in common the rows that go with it."""
    members = [n for n, table in enumerate(tables) if table.process is not None]
    if not members:
        return [{}]
    every = np.unique(np.concatenate([tables[n].process for n in members]), axis=0)
    own = [tables[n].process for n in members]
    return [
        {
            n: ((rows == shared) | (rows == FREE)).all(axis=1)
            for n, rows in zip(members, own, strict=True)
        }
        for shared in every
    ]


def least_over_all(space: SearchSpace) -> float:
    """The least period over every engine and size that the models may share, each searched."""
    least = np.inf
    for copies in masks_of(space.tables.copies):
        for calls in masks_of(space.tables.calls):
            rows = space.rows_where(copies, calls)
            if space.is_complete(rows):
                tables = without_processes(space.tables)
                found = solve(replace(space, tables=tables, rows=rows), limits=LIMITS)
                assert found.is_proven
                least = min(least, found.objective_value)
    return float(least)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "dapo", "remax"])
def test_the_best_is_that_of_all_that_may_be_shared(algorithm: str) -> None:
    job = resolve(verl_job(algorithm, **ONE_RESPONSE if algorithm == "remax" else {}))
    space = SearchSpace.of(job, price_candidates(job))
    found = solve(space, limits=LIMITS)
    assert found.is_proven
    assert found.solution is not None
    assert found.objective_value == pytest.approx(least_over_all(space), rel=1e-9)
    assert shared_by(space, found.solution) is not None
    free = solve(replace(space, tables=without_processes(space.tables)), limits=LIMITS)
    assert free.objective_value <= found.objective_value


def test_spaces_come_with_rising_bounds_and_hold_what_they_promise() -> None:
    job = resolve(verl_job())
    space = SearchSpace.of(job, price_candidates(job))
    choices, bounds = ProcessSpaces(space), []
    while (choice := choices.next(np.inf)) is not None:
        bounds.append(choice.bound_seconds)
        columns = [copy.process for copy in choice.space.tables.copies if copy.process is not None]
        wanted = np.array(choice.values)
        assert all(((each == wanted) | (each == FREE)).all() for each in columns)
    assert len(bounds) > 3
    assert bounds == sorted(bounds)


def test_a_space_of_one_process_keeps_the_placement_and_drops_others() -> None:
    job = resolve(verl_job())
    space = SearchSpace.of(job, price_candidates(job))
    found = solve(space, limits=LIMITS).solution
    assert found is not None
    part = of_process(space, found)
    assert part.is_complete()
    for mask, row in zip(part.rows.copies, found.copy_rows, strict=True):
        assert row is None or mask[row]
    assert sum(mask.sum() for mask in part.rows.copies) < sum(
        mask.sum() for mask in space.rows.copies
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "staleness"),
    [("ppo", 0), ("grpo", 0), ("dapo", 0), ("rloo", 0), ("remax", 0), ("ppo", 1), ("grpo", 2)],
)
def test_plans_for_verl_are_what_verl_can_run(algorithm: str, staleness: int) -> None:
    pools = [pool(4, gpu="h100-80gb-sxm")]
    changes = {"search__staleness": staleness, "cluster__pools": pools}
    changes |= ONE_RESPONSE if algorithm == "remax" else {}
    plan = make_plan(verl_job(algorithm, **changes))
    assert VERL.name in plan.runs_with
    job = resolve(plan.spec)
    assert refusals(job, plan.placement(), VERL) == []
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    together = [copy for role, copy in homes.items() if role in VERL.process_roles]
    assert len({(copy.first_gpu, copy.num_gpus, copy.engine) for copy in together}) == 1
    if together[0].engine == "megatron":
        sizes = {(c.layout.tensor_parallel_size, c.layout.pipeline_parallel_size) for c in together}
        assert len(sizes) == 1
    if staleness:
        generated_by = {call.copy_id for call in plan.calls if call.kind == "generate"}
        assert generated_by == {"actor.shadow"}


def test_of_searches_that_a_limit_cut_the_least_bound_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are open in the same words; the bound is the least of theirs, whichever came last."""
    job = resolve(verl_job())
    space = SearchSpace.of(job, price_candidates(job))
    bounds = iter([30.0, 20.0, *[40.0] * 10_000])

    def cut(*_: object) -> SearchResult:
        bound = next(bounds)
        return SearchResult(None, bound, is_proven=False, weak_side="with actor.shadow")

    monkeypatch.setattr(search, "_solve", cut)
    found = search.solve(space, limits=LIMITS)
    assert not found.is_proven
    assert found.lower_bound == 20.0
    assert found.weak_side == "with actor.shadow"


def two_generations(**changes: Any) -> Any:
    return verl_job("remax", **ONE_RESPONSE, **changes)


@pytest.mark.slow
def test_generations_of_one_engine_agree_also_where_only_one_is_pinned() -> None:
    sizes = {"tensor_parallel_size": 2}
    parallelism = {"actor.generate.greedy": sizes}
    plan = make_plan(two_generations(constraints__parallelism=parallelism))
    rollouts = [call for call in plan.calls if call.kind == "generate"]
    assert len(rollouts) == 2
    assert {call.parallelism.tensor_parallel_size for call in rollouts} == {2}
    assert len({call.kv_cache_bytes for call in rollouts}) == 1


@pytest.mark.slow
def test_generations_that_are_pinned_to_two_engines_have_no_plan() -> None:
    parallelism = {
        "actor.generate": {"tensor_parallel_size": 1},
        "actor.generate.greedy": {"tensor_parallel_size": 2},
    }
    with pytest.raises(InfeasibleError):
        make_plan(two_generations(constraints__parallelism=parallelism))


@pytest.mark.slow
def test_a_placement_with_two_engines_is_refused() -> None:
    spec = two_generations()
    plan = make_plan(spec)
    calls = [
        call.model_copy(update={"kv_cache_bytes": 2 * (call.kv_cache_bytes or 0)})
        if call.id == "actor.generate.greedy"
        else call
        for call in plan.placement().calls
    ]
    other = plan.placement().model_copy(update={"calls": calls})
    (refused,) = refusals(resolve(spec), other, VERL)
    assert "differ in kv_cache_bytes, but verl@0.9.1 has one engine for both" in refused


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"search__staleness": 1}, "search.staleness: remax generates on the GPUs that train"),
        ({"workload__responses_per_prompt": 4}, "workload.responses_per_prompt: it is 4"),
    ],
)
def test_remax_that_verl_cannot_run_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError, match=field):
        resolve(verl_job("remax", **(ONE_RESPONSE | changes)))


VARIATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "epochs": {"workload__epochs": 2},
    "epochs, stale": {"workload__epochs": 2, "search__staleness": 1},
    "no barrier": {"search__iteration_barrier": False},
    "padded": {"workload__packed_sequences": False},
    "padded and long": {
        "workload__packed_sequences": False,
        "workload__response_length": {"mean": 12_000, "max": 16_000},
    },
    "updates": {"workload__prompts_per_iteration": 60, "workload__updates_per_epoch": 8},
    "another reference": {"models__reference__architecture": "qwen2.5-7b"},
    "8-bit cache": {
        "workload__rollout_engine": "sglang",
        "workload__rollout_cache_precision": "fp8",
    },
    "fsdp": {"workload__training_stack": "verl"},
    "fsdp, unsharded": {
        "workload__training_stack": "verl",
        "constraints__parallelism": {"actor": {"sharding": "none"}},
    },
    "lora": {"models__actor__lora": {"rank": 16}},
    "two pools": {
        "cluster__pools": [pool(1, name="a"), pool(1, name="b")],
        "search__staleness": 1,
    },
    "unequal nodes": {"cluster__pools": [pool(2, name="a"), pool(2, name="b", gpus_per_node=8)]},
    "fewest": {"search__objective": "fewest_gpus"},
    "price, stale": {"search__objective": "price", "search__staleness": 1},
    "pretraining": {"workload__pretrain_loss": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "remax"])
@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
def test_a_job_is_refused_or_its_plan_exported(algorithm: str, changes: dict[str, Any]) -> None:
    pools = [pool(4, gpu="h100-80gb-sxm")]
    try:
        responses = ONE_RESPONSE if algorithm == "remax" else {}
        plan = make_plan(verl_job(algorithm, **({"cluster__pools": pools} | responses | changes)))
    except (SpecError, InfeasibleError):
        return
    assert VERL.name in plan.runs_with
    export(plan, VERL.name)
