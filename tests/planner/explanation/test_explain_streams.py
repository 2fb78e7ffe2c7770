"""Explaining, robust plans and re-planning of every kind of job that the space offers."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from automap.planner.errors import SpecError
from automap.planner.explanation.alternatives import Alternatives
from automap.planner.explanation.contenders import contender
from automap.planner.explanation.explain import explain, open_plan
from automap.planner.explanation.factors import Factors, scaled
from automap.planner.explanation.regret import corners, factors_of, groups_of
from automap.planner.explanation.result import ExplainOptions
from automap.planner.explanation.sensitivity import subjects, threshold
from automap.planner.explanation.solving import Contenders, best_within, limits_of
from automap.planner.explanation.stream_questions import streams_and_tails
from automap.planner.explanation.study import TableCache, study
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.replanning.replan import replan
from automap.planner.replanning.result import ReplanOptions
from automap.planner.search.model.order import Edge, Order
from automap.planner.search.model.timing import _least_period, _longest_paths, exact_timing
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough

SMALL = {"architecture": "qwen2.5-0.5b"}
LONG_TAIL = {"p50": 100, "p90": 500, "p99": 3000, "max": 4096}
LONGER_TAIL = {"p50": 200, "p90": 300, "p99": 1000, "max": 32768}
EDGES = [
    {"source": "actor.generate", "target": "reward.forward", "streamed": True},
    {"source": "reward.forward", "target": "actor.train"},
]
CALLS = [
    {"id": f"{role}.{kind}", "role": role, "kind": kind}
    for role, kind in (("actor", "generate"), ("reward", "forward"), ("actor", "train"))
]


@dataclass(frozen=True)
class Kind:
    """A kind of job: what is changed of the small one."""

    changes: dict[str, Any]
    algorithm: str | None = "grpo"


def searched(**search: Any) -> dict[str, Any]:
    return {f"search__{name}": value for name, value in search.items()}


def scored_by(reward: dict[str, Any]) -> dict[str, Any]:
    return {"models": {"actor": SMALL, "reference": SMALL, "reward": reward}}


TAILS = {"workload__response_length": LONG_TAIL, "num_nodes": 2}
FEW_LONG = {
    "models": {
        "actor": {"architecture": "llama-3.1-8b", "lora": {"rank": 8}},
        "reward": {"function": True},
    },
    "cluster__pools": [{"name": "a100", "gpu": "l40s", "num_nodes": 1}],
    "workload__response_length": LONGER_TAIL,
}
TWO_POOLS = {"cluster__pools": [pool(1), pool(1, name="l40s", gpu="l40s")]}
KINDS = {
    "streaming and tails": Kind(TAILS | searched(streaming=True, generation_tail=True)),
    "tensor schedule": Kind(FEW_LONG | searched(generation_tensor_schedule=True)),
    "an edge of its own": Kind(
        {
            "num_nodes": 2,
            "dataflow": {"calls": CALLS, "edges": EDGES},
            "models": {"actor": SMALL, "reward": SMALL},
        },
        None,
    ),
    "streams and staleness": Kind(
        TAILS | searched(streaming=True, generation_tail=True, staleness=1)
    ),
    "streams on two pools": Kind(TWO_POOLS | searched(streaming=True)),
    "streams to a function": Kind(
        scored_by({"function": True, "seconds_per_response": 0.05, "concurrency": 16})
        | searched(streaming=True)
    ),
    "streams to a service": Kind(
        scored_by({"remote": {"requests_per_second": 200, "seconds_per_response": 0.4}})
        | searched(streaming=True, generation_tail=True)
    ),
    "no barrier": Kind(searched(iteration_barrier=False) | {"num_nodes": 2}),
    "cheapest, streamed": Kind(searched(objective="price", streaming=True) | {"num_nodes": 2}),
    "cut short": Kind(searched(time_limit_seconds=1e-3, limit_by="work", streaming=True), "ppo"),
    "a strategy": Kind(searched(strategy="split", streaming=True) | {"num_nodes": 2}),
    "no node to lose": Kind({"cluster__pools": [pool(1, gpus_per_node=1)]}),
}
QUICK = ("streaming and tails", "tensor schedule", "streams and staleness")


def kinds(*quick: str) -> list[Any]:
    """All kinds; those that are not quick only where nobody waits."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in KINDS]


def job(name: str) -> JobSpec:
    kind = KINDS[name]
    return small_job(kind.algorithm, **kind.changes)


@cache
def plan(name: str) -> Plan:
    """As a file or a store has it."""
    return Plan.model_validate_json(make_plan(job(name)).model_dump_json(by_alias=True))


def least_value(spec: JobSpec, factors: Factors) -> float:
    """The best objective under some errors, by the ordinary search."""
    now = scaled(study(spec), factors)
    solved = best_within(now, np.inf, limits_of(now, 30.0))
    assert solved.is_proven
    return solved.lower_bound


@pytest.mark.slow
@pytest.mark.parametrize("name", kinds(*QUICK))
def test_every_kind_is_timed_as_the_search_times_it(name: str) -> None:
    given, selected = open_plan(plan(name), TableCache())
    each, groups = contender(given, selected), groups_of(given)
    assert each.periods([Factors.ones(given)])[0] == pytest.approx(
        plan(name).iteration_seconds, abs=1e-5
    )
    draw = np.random.default_rng(5)
    scenarios = [
        factors_of(given, groups, logs) for logs in draw.normal(size=(8, len(groups))) * 0.4
    ]
    timing = selected.timing
    starts = [*timing.call_starts, *(start or 0.0 for start in timing.sync_starts)]
    stages = [*timing.call_stages, *timing.sync_stages]
    for factors, found in zip(scenarios, each.periods(scenarios), strict=True):
        problem, assignment = scaled(given, factors).space.alone(selected)
        expected = exact_timing(problem, assignment, starts, stages).period
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", kinds())
def test_every_kind_is_explained(name: str) -> None:
    made = plan(name)
    found = explain(made, ExplainOptions(scenarios=2, search_seconds=0.5))
    assert {each.subject for each in found.sensitivity} >= {call.id for call in made.calls}
    assert found.regret is not None
    for each in found.alternatives:
        assert each.outcome != "undecided"
        if each.question == "no_memory_margin":  # it allows more than the plan's own search
            continue
        if made.search.status == "optimal" and each.objective_value is not None:
            assert each.objective_value >= made.search.objective_value - 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", kinds(*QUICK))
def test_every_kind_is_planned_anew(name: str) -> None:
    made = plan(name)
    seconds = {call.id: call.end_seconds - call.start_seconds for call in made.calls}
    same = replan(made, ReplanOptions(search_seconds=1.0))
    assert same.keep_seconds == pytest.approx(made.iteration_seconds, abs=1e-5)
    if made.search.status == "optimal":
        assert (same.verdict, same.proven) == ("keep", True)
    # All calls and syncs 1.3 times as long: so is the iteration, its chunks and tails with it.
    slow = {name: 1.3 * took for name, took in seconds.items() if took}
    slow |= {
        f"{sync.role}.sync": 1.3 * (sync.end_seconds - sync.start_seconds)
        for sync in made.transitions
    }
    longer = replan(made, ReplanOptions(measured=slow, search_seconds=1.0))
    assert longer.keep_seconds == pytest.approx(1.3 * made.iteration_seconds, rel=1e-5)
    added = replan(made, ReplanOptions(add_nodes={"a100": 1}, search_seconds=1.0))
    assert added.verdict in ("keep", "undecided")
    if added.placement is not None:
        assert added.move_seconds is not None
        assert added.keep_seconds is not None
        assert added.move_seconds < added.keep_seconds or "price" in added.answer


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streaming and tails", "streams and staleness"])
def test_the_best_plan_without_a_node_is_that_of_the_smaller_cluster(name: str) -> None:
    kind = KINDS[name]
    smaller = make_plan(small_job(kind.algorithm, **{**kind.changes, "num_nodes": 1}))
    found = replan(plan(name), ReplanOptions(lose_nodes={"a100": 1}, search_seconds=4.0))
    assert found.move_seconds == pytest.approx(smaller.iteration_seconds, rel=2 * found.margin)


@pytest.mark.parametrize(
    ("name", "subject", "end"),
    [
        ("streaming and tails", "reference.forward", 4.0),
        pytest.param("streaming and tails", "actor.generate", 4.0, marks=pytest.mark.slow),
        pytest.param("tensor schedule", "actor.generate reshard", 4.0, marks=pytest.mark.slow),
        pytest.param("tensor schedule", "actor.train", 0.25, marks=pytest.mark.slow),
    ],
)
def test_a_threshold_is_where_another_plan_wins(name: str, subject: str, end: float) -> None:
    made, margin = plan(name), 0.001
    given, selected = open_plan(made, TableCache())
    (about,) = (each for each in subjects(given, selected, made) if each.name == subject)
    found = threshold(Contenders(given, selected), made, about, end, margin, 2.0)
    assert found.proven
    factor = end if found.error is None else 1 + found.error
    closer = [(0.97, False)] if found.error is None else [(0.97, False), (1.03, True)]
    for power, wins in closer:
        factors = about.factors(factor**power)
        own = Contenders(given, selected)
        own.refit(factors)
        value = float(own.plan_values([factors])[0])
        assert (least_value(made.spec, factors) < (1 - margin) * value - 1e-4) is wins


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streaming and tails", "tensor schedule", "no barrier"])
def test_a_robust_plan_of_every_kind_regrets_no_more_than_the_best_by_estimate(name: str) -> None:
    spec = job(name)
    search = spec.search.model_copy(update={"robust": True})
    robust = make_plan(spec.model_copy(update={"search": search}))
    report = robust.search.robust
    assert report is not None
    assert report.unproven == 0
    given = study(spec)
    groups = groups_of(given)
    every = [factors_of(given, groups, logs) for logs in corners(groups, seed=spec.search.seed)]
    best = np.array([least_value(spec, factors) for factors in every])
    regret = []
    for made in (robust, plan(name)):
        study_, selected = open_plan(made, TableCache())
        regret.append(float((contender(study_, selected).periods(every) / best).max() - 1))
    assert regret[0] <= regret[1] + 1e-6
    assert regret[0] <= report.worst_regret + 2 * report.margin
    assert report.lower_bound <= report.worst_regret <= report.nominal_regret + 1e-9


def test_the_switch_of_a_schedule_moves_weights() -> None:
    made = plan("tensor schedule")
    given, selected = open_plan(made, TableCache())
    (generate,) = (call for call in made.calls if call.kind == "generate")
    assert generate.tail is not None
    each, ones = contender(given, selected), Factors.ones(given)
    assert each.transition_seconds[0] == pytest.approx(
        generate.seconds_by_part.transition, abs=1e-5
    )
    longer = replace(ones, transition=2 * ones.transition)
    gained = each.periods([longer])[0] - each.periods([ones])[0]
    assert gained == pytest.approx(generate.seconds_by_part.transition, abs=1e-5)


@pytest.mark.slow
def test_without_streams_and_tails_is_the_job_without_the_options() -> None:
    made = plan("streaming and tails")
    given, selected = open_plan(made, TableCache())
    asked = {each.name: each for each in streams_and_tails(given, selected)}
    assert set(asked) in ({"streaming:no", f"tail:actor.generate:{it}"} for it in ("no", "yes"))
    search = made.spec.search.model_copy(update={"streaming": False})
    plain = make_plan(made.spec.model_copy(update={"search": search}))
    answered = Alternatives(given, made, selected, seconds=2.0, tables=TableCache()).answer(
        asked["streaming:no"]
    )
    assert answered.iteration_seconds == pytest.approx(plain.iteration_seconds, abs=2e-5)
    assert answered.lower_bound_seconds == pytest.approx(plain.iteration_seconds, abs=2e-5)
    tail = next(each for name, each in asked.items() if name.startswith("tail:"))
    other = Alternatives(given, made, selected, seconds=2.0, tables=TableCache()).answer(tail)
    assert other.placement is not None
    (generate,) = (call for call in other.placement.calls if call.kind == "generate")
    assert (generate.tail is not None) == tail.name.endswith("yes")


def test_tables_of_other_streams_are_not_taken() -> None:
    spec = job("streams and staleness")
    fewer = spec.model_copy(update={"search": spec.search.model_copy(update={"stream_chunks": 2})})
    kept = TableCache()
    one, other = kept.study(spec).tables, kept.study(fewer).tables
    assert one is not other
    assert kept.study(spec).tables is one


def test_a_tail_that_the_search_does_not_try_is_refused() -> None:
    made = plan("tensor schedule")
    placement = made.placement()
    calls = [
        call
        if call.tail is None
        else call.model_copy(update={"tail": call.tail.model_copy(update={"ended_share": 0.8})})
        for call in placement.calls
    ]
    own = estimate(made.spec, placement.model_copy(update={"calls": calls}))
    with pytest.raises(SpecError, match="the search tries no tail after") as refused:
        explain(own)
    assert refused.value.field == "plan.calls.actor.generate.tail"
    assert "0.9" in refused.value.remedy


def test_a_tail_that_the_job_does_not_ask_for_is_explained() -> None:
    made = plan("tensor schedule")
    update = {"generation_tensor_schedule": False, "target": "any"}
    search = made.spec.search.model_copy(update=update)
    own = estimate(made.spec.model_copy(update={"search": search}), made.placement())
    given, selected = open_plan(own, TableCache())
    assert contender(given, selected).periods([Factors.ones(given)])[0] == pytest.approx(
        own.iteration_seconds, abs=1e-5
    )
    assert given.placement(selected).calls == own.placement().calls


@pytest.mark.slow
def test_plans_that_cost_nothing_are_beaten_by_none() -> None:
    free = [pool(1, price_per_gpu_hour=0.0)]
    spec = small_job("rloo", cluster__pools=free, search__objective="price")
    parts = ["sensitivity", "regret"]
    found = explain(make_plan(spec), ExplainOptions.model_validate({"parts": parts}))
    assert found.regret is not None
    assert found.regret.worst_corner == found.regret.sampled.max == 0
    for each in found.sensitivity:
        assert each.more.error is each.less.error is None
        assert each.more.proven
    with pytest.raises(SpecError, match=r"search\.robust: the best plan costs nothing"):
        make_plan(
            small_job("rloo", cluster__pools=free, **searched(objective="price", robust=True))
        )


@pytest.mark.parametrize("seed", range(6))
def test_many_scenarios_are_timed_as_one_by_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    nodes = int(draw.integers(2, 8))
    stages = draw.integers(0, 3, nodes)
    edges = []
    for u in range(nodes):
        for v in range(u + 1, nodes):
            ahead = int(stages[u] - stages[v])
            if draw.random() < 0.6:
                parts = ((0.4, 0.0), (1.0, 0.5)) if draw.random() < 0.3 else ((1.0, 0.0),)
                edges += [Edge(u, v, ahead, parts), Edge(v, u, 1 - ahead)]
    durations = draw.uniform(0.0, 10.0, size=(5, nodes))
    order = Order.of(edges, nodes)
    found = order.least_periods(durations)
    for row, period in zip(durations.tolist(), found, strict=True):
        timed = [
            (u, v, at, max(a * row[u] - b * row[v] for a, b in parts)) for u, v, at, parts in edges
        ]
        assert period == pytest.approx(_least_period(row, timed)[0], rel=1e-6)
    forward = [edge._replace(distance=0) for edge in edges if edge.source < edge.target]
    spans = Order.of(forward, nodes).makespans(durations)
    for row, span in zip(durations.tolist(), spans, strict=True):
        timed = [
            (u, v, 0, max(a * row[u] - b * row[v] for a, b in parts)) for u, v, _, parts in forward
        ]
        times = _longest_paths(row, timed, 0.0)
        assert times is not None
        expected = max(start + took for start, took in zip(times, row, strict=True))
        assert span == pytest.approx(expected, rel=1e-6)
