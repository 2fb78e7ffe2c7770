"""The simple plan: within its tolerance of the proven optimum, sound, never harder to set up."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from automap.planner.assembly.plan import placement_of
from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.search import STARTS, SearchSpace, best_placement, price_candidates
from automap.planner.search.complexity import Traits, complexity
from automap.planner.search.simplicity import SPARE_PROBABILITIES
from automap.planner.spec import JobSpec, SearchSpec
from automap.service.cli.plan.details import totals
from automap.service.cli.plan.headline import headline
from tests.helpers.small_jobs import REMOVE, pool, small_job

ROOT = Path(__file__).parents[2]
FIELD = "search__simplicity_tolerance"
PARALLEL_SIZES = ("tensor", "pipeline", "context", "data", "expert")
COPY_SIZES = (*(f"{name}_parallel" for name in PARALLEL_SIZES), "virtual_pipeline_parallel")
MOST_ODD_SIZES = 5
CUT_OR_LONG = {
    "agents-12-models-512xh100",
    "hybridflow-ppo-70b-4096xa100",
    "safe-rlhf-two-critics-70b-128xa100",
    "tiny-own-algorithm-cpu",
}
"""Three take tens of seconds, and the last needs its own algorithm's file."""


@cache
def split_plan(tolerance: float, objective: str = "throughput") -> Plan:
    """The best plan of this job has three ranges; one range of all GPUs is a little slower."""
    changes = {
        FIELD: tolerance,
        "search__objective": objective,
        "workload__prompts_per_iteration": 24,
    }
    return make_plan(small_job("ppo", num_nodes=2, **changes))


def ranges(plan: Plan) -> set[tuple[str, int, int]]:
    return {(copy.pool, copy.first_gpu, copy.num_gpus) for copy in plan.copies}


def test_the_target_has_a_tolerance_and_research_and_strategies_have_none() -> None:
    def resolved(**search: Any) -> float:
        return resolve(small_job(**{FIELD: REMOVE, **search})).simplicity_tolerance

    assert resolved() == 0.03
    assert resolved(search__target="any") == resolved(search__strategy="verl") == 0.0
    assert resolved(search__target="any", **{FIELD: 0.02}) == 0.02


@pytest.mark.parametrize("tolerance", [-0.01, 1.0])
def test_only_a_share_is_accepted(tolerance: float) -> None:
    with pytest.raises(ValueError, match="simplicity_tolerance"):
        SearchSpec.model_validate({"simplicity_tolerance": tolerance})


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["throughput", "price", "run_price"])
def test_a_simple_plan_says_what_it_misses(objective: str) -> None:
    best, simple = split_plan(0.0, objective), split_plan(0.5, objective)
    assert best.search.status == "optimal"
    assert best.search.within_tolerance is None
    assert len(ranges(simple)) == 1
    assert simple.search.status == "feasible"
    assert simple.search.within_tolerance == 0.5
    assert simple.search.lower_bound == best.search.lower_bound
    assert 0 < simple.relative_gap <= 0.5 / 1.5 + 1e-9
    assert "the search is complete, and a simpler plan" in str(simple.search.stopped)
    first = headline(simple).plain
    assert "within 50% of the proven optimum; the " in first
    assert first.endswith(": --simplicity-tolerance 0")
    console = Console(width=200)
    with console.capture() as shown:
        console.print(totals(simple))
    assert "simple or with memory to spare, within 50% of the optimum" in shown.get()


def test_the_best_plan_has_more_than_one_range() -> None:
    """Else the tests above would find a simple plan without looking for one."""
    assert len(ranges(split_plan(0.0))) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"search__robust": True},
        {"search__objective": "fewest_gpus"},
        {"search__optimality_gap": 0.01},
    ],
)
def test_searches_that_choose_themselves_are_left_alone(changes: dict[str, Any]) -> None:
    best = make_plan(small_job(num_nodes=2, **changes))
    simple = make_plan(small_job(num_nodes=2, **{**changes, FIELD: 0.5}))
    assert simple.placement() == best.placement()
    assert simple.search.within_tolerance is None


def test_the_rest_of_the_tolerance_buys_memory() -> None:
    """The optimum scores with a large micro-batch; a smaller one is as good and takes less."""
    best = make_plan(memory_job(0.0))
    assert (best.out_of_memory_probability or 0) > SPARE_PROBABILITIES[0]
    spared = make_plan(memory_job(0.01))
    assert (spared.out_of_memory_probability or 1) <= SPARE_PROBABILITIES[0]
    assert spared.iteration_seconds <= 1.01 * best.iteration_seconds
    assert not violations(resolve(spared.spec), spared)


def memory_job(tolerance: float) -> JobSpec:
    """GRPO of a 7B model on one node, whose log-probabilities are computed in large batches.

    It is priced as software that has the logits of a whole batch.
    """
    model = {"architecture": "qwen2.5-7b"}
    return JobSpec.model_validate(
        {
            "name": "memory",
            "algorithm": "grpo",
            "models": {"actor": model, "reference": model, "reward": {"function": True}},
            "workload": {
                "prompts_per_iteration": 256,
                "responses_per_prompt": 8,
                "prompt_length": {"mean": 300, "max": 1024},
                "response_length": {"p50": 2000, "p90": 5000, "p99": 8000, "max": 8192},
                "updates_per_epoch": 4,
                "training_stack": "verl",
            },
            "cluster": {"pools": [{"name": "h100", "gpu": "h100", "num_nodes": 1}]},
            "search": {"simplicity_tolerance": tolerance},
        }
    )


def test_the_check_refuses_a_plan_that_misses_by_more() -> None:
    simple = split_plan(0.5)
    job = resolve(simple.spec)
    least = 0.5 * simple.search.lower_bound
    gap = 1 - least / simple.search.objective_value
    report = simple.search.model_copy(update={"lower_bound": least})
    lower = simple.model_copy(update={"search": report, "relative_gap": gap})
    assert any("the most within the tolerance" in line for line in violations(job, lower))
    for update, told in (
        ({"within_tolerance": 0.4}, "within_tolerance is 0.4, but 0.5 is allowed"),
        ({"status": "optimal"}, "but its status is optimal"),
    ):
        false = simple.model_copy(update={"search": simple.search.model_copy(update=update)})
        assert any(told in line for line in violations(job, false))


JOBS: dict[str, Any] = {
    "algorithm": st.sampled_from(["ppo", "grpo", "remax"]),
    "nodes": st.sampled_from([1, 2]),
    "staleness": st.sampled_from([0, 0, 1]),
    "objective": st.sampled_from(["throughput", "throughput", "price"]),
    "tolerance": st.sampled_from([0.001, 0.01, 0.1]),
    "response": st.sampled_from([128, 512, 2048]),
}


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(**JOBS)
def test_a_simple_plan_is_sound_repeats_and_is_within_the_tolerance(
    algorithm: str,
    nodes: int,
    staleness: int,
    objective: str,
    tolerance: float,
    response: int,
) -> None:
    changes: dict[str, Any] = {
        "cluster__pools": [pool(nodes)],
        "search__staleness": 0 if algorithm == "remax" else staleness,
        "search__limit_by": "work",
        "search__time_limit_seconds": 5,
        "search__objective": objective,
        "workload__response_length": {"mean": response, "max": 2 * response},
    }
    spec = small_job(algorithm, **changes)
    search = spec.search.model_copy(update={"simplicity_tolerance": tolerance})
    asked = spec.model_copy(update={"search": search})
    best, simple = make_plan(spec), make_plan(asked)
    if best.search.status != "optimal":
        return
    value = simple.search.objective_value
    assert value <= (1 + tolerance) * best.search.objective_value * (1 + 1e-9) + 1e-6
    assert value >= best.search.lower_bound - 1e-6
    assert violations(resolve(asked), simple) == []
    assert estimate(asked, simple.placement()).iteration_seconds == pytest.approx(
        simple.iteration_seconds, rel=1e-9
    )
    again = make_plan(asked)
    assert (again.placement(), again.iteration_seconds) == (
        simple.placement(),
        simple.iteration_seconds,
    )
    if simple.search.within_tolerance is not None:
        assert _ease(simple) < _ease(best)


def _ease(plan: Plan) -> tuple[int, ...]:
    """The first of what complexity counts, by the plan alone."""
    counts = {copy.num_gpus for copy in plan.copies}
    layouts = {
        tuple(getattr(copy.layout, f"{name}_size") for name in COPY_SIZES)
        for copy in plan.copies
        if not copy.id.endswith(".shadow")
    }
    placed = [copy.layout for copy in plan.copies]
    generated = [
        call.parallelism
        for call in plan.calls
        if call.parallelism is not None and call.id.endswith("generate")
    ]
    dimensions = sum(
        getattr(layout, f"{name}_parallel_size") > 1
        for layout in (*placed, *generated)
        for name in PARALLEL_SIZES
        if name != "data"
    )
    interleaved = sum(layout.virtual_pipeline_parallel_size > 1 for layout in placed)
    shadows = sum(copy.id.endswith(".shadow") for copy in plan.copies)
    odd = len(odd_sizes(plan))
    return len(ranges(plan)), len(counts), len(layouts), dimensions, odd, shadows, interleaved


def odd_sizes(plan: Plan) -> list[str]:
    """Sizes that are neither a power of two nor the number of nodes (or all GPUs) of the pool."""
    pools = {each.name: each for each in resolve(plan.spec).pools}
    found = []
    layouts = [(copy.id, copy.pool, copy.layout) for copy in plan.copies]
    for call in plan.calls:
        if call.parallelism is not None and call.id.endswith("generate"):
            (at,) = [copy.pool for copy in plan.copies if copy.id == call.copy_id]
            layouts.append((call.id, at, call.parallelism))
    for name, at, layout in layouts:
        nodes = -(-pools[at].usable_gpus // pools[at].gpus_per_node)
        for size in PARALLEL_SIZES:
            value = getattr(layout, f"{size}_parallel_size")
            if value & (value - 1) and value != nodes:
                found.append(f"{plan.name}: {name}: {size} {value}")
    for copy in plan.copies:
        count = copy.num_gpus
        if count & (count - 1) and count != pools[copy.pool].usable_gpus:
            found.append(f"{plan.name}: {copy.id}: {count} GPUs")
    return found


@cache
def example_plan(name: str) -> Plan:
    document = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text("utf-8"))
    document["search"] = {**document.get("search", {}), "limit_by": "work"}
    return make_plan(JobSpec.model_validate(document))


EXAMPLES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.yaml")
    if not path.name.endswith(".run.yaml") and path.stem not in CUT_OR_LONG
)


@pytest.mark.slow
def test_the_examples_have_hardly_any_odd_sizes() -> None:
    found = [size for name in EXAMPLES for size in odd_sizes(example_plan(name))]
    assert len(found) <= MOST_ODD_SIZES, found


def test_one_range_where_that_costs_a_third_of_a_percent() -> None:
    plan = example_plan("grpo-70b-128xa100")
    assert len(ranges(plan)) == 1
    assert plan.search.within_tolerance == 0.03
    assert 0 < plan.relative_gap < 0.03


def test_complexity_counts_what_the_plan_shows() -> None:
    """The best strategy of a job by rows, against a count by the plan's own words."""
    job = resolve(small_job("ppo", num_nodes=2))
    space = SearchSpace.of(job, price_candidates(job))
    best = best_placement(job, space, STARTS).solution
    assert best is not None
    plan = estimate(job.spec, placement_of(job, space.tables, best))
    assert complexity(space, Traits.of(space), best) == _ease(plan)


@pytest.mark.parametrize("target", ["slime@0.3.1", "verl@0.9.1"])
def test_models_of_one_process_get_other_sizes_where_these_are_simpler(target: str) -> None:
    """Equal sizes of several models are no choice of one model's: each is a search."""
    models = {role: {"architecture": "qwen3-30b-a3b"} for role in ("actor", "reference")}
    spec = small_job(
        models=models | {"reward": {"function": True}},
        cluster__pools=[pool(4, gpu="h100")],
        workload__prompts_per_iteration=256,
        workload__responses_per_prompt=8,
        workload__prompt_length={"mean": 300, "max": 2048},
        workload__response_length={"p50": 4000, "p90": 10_000, "max": 16_384},
        search__target=target,
        **{FIELD: 0.03},
    )
    fastest = make_plan(spec.model_copy(update={"search": _without_tolerance(spec)}))
    simple = make_plan(spec)
    assert _ease(simple) < _ease(fastest)
    (before, after) = (_of_actor(each) for each in (fastest, simple))
    assert before != after
    assert simple.iteration_seconds <= 1.03 * fastest.iteration_seconds
    assert violations(resolve(spec), simple) == []


def _without_tolerance(spec: JobSpec) -> SearchSpec:
    return spec.search.model_copy(update={"simplicity_tolerance": 0.0})


def _of_actor(plan: Plan) -> tuple[int, ...]:
    (layout,) = {copy.layout for copy in plan.copies if copy.id == "actor"}
    return tuple(getattr(layout, f"{name}_parallel_size") for name in PARALLEL_SIZES)
