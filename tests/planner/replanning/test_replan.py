"""Keep or move: against searches on the changed job, and against what the move must cost."""

from dataclasses import replace
from functools import cache
from math import inf

import numpy as np
import pytest

from automap.planner.assembly import plan as assembly
from automap.planner.assembly.proof import bound_is_proven
from automap.planner.cost import constants
from automap.planner.errors import SpecError
from automap.planner.explanation.factors import Factors, scaled
from automap.planner.explanation.solving import best_within
from automap.planner.explanation.study import Study, TableCache, study
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.replanning import warm_search
from automap.planner.replanning.cluster_state import changed_spec, cluster_state_of
from automap.planner.replanning.moves import move_between
from automap.planner.replanning.replan import replan
from automap.planner.replanning.result import MoveCost, Replan, ReplanOptions
from automap.planner.replanning.verdict import Verdict, kept
from automap.planner.search import (
    Budget,
    Limits,
    Proven,
    SearchSpace,
    Selected,
    ascending,
    solve_ascending,
)
from tests.helpers.small_jobs import pool, small_job

pytestmark = pytest.mark.thorough


@cache
def plan() -> Plan:
    return make_plan(
        small_job(
            "grpo",
            num_nodes=2,
            workload__startup_seconds=30.0,
            workload__checkpoint_seconds=2.0,
            workload__iterations=500,
        )
    )


def seconds_of(name: str) -> float:
    call = next(call for call in plan().calls if call.id == name)
    return call.end_seconds - call.start_seconds


def answered(**options: object) -> Replan:
    return replan(plan(), ReplanOptions.model_validate(options))


def test_a_plan_that_runs_as_estimated_is_kept() -> None:
    found = answered()
    assert found.verdict == "keep"
    assert found.keep_seconds == pytest.approx(plan().iteration_seconds, abs=1e-6)
    assert (found.proven, found.move_seconds, found.break_even_iterations) == (True, None, None)
    assert found.lower_bound_seconds is not None
    assert found.lower_bound_seconds >= (1 - found.margin) * plan().iteration_seconds - 1e-6


def test_measured_seconds_lengthen_the_iteration_as_the_plan_says() -> None:
    found = answered(measured={"actor.generate": 1.5 * seconds_of("actor.generate")})
    (correction,) = found.corrections
    assert (correction.role, correction.kind) == ("actor", "generate")
    assert correction.ratio == pytest.approx(1.5)
    assert found.keep_seconds is not None
    longer = found.keep_seconds - plan().iteration_seconds
    assert 0 < longer <= 0.5 * seconds_of("actor.generate") + 1e-5


@pytest.mark.slow
def test_without_a_node_the_best_plan_of_the_smaller_cluster_is_found() -> None:
    found = answered(lose_nodes={"a100": 1}, search_seconds=2.0)
    assert (found.verdict, found.keep_seconds, found.proven) == ("move", None, True)
    smaller = make_plan(small_job("grpo", num_nodes=1))
    assert found.move_seconds == pytest.approx(smaller.iteration_seconds, rel=found.margin)
    assert found.placement is not None
    spec = changed_spec(plan().spec, ReplanOptions(lose_nodes={"a100": 1}))
    again = estimate(spec, found.placement)
    assert again.iteration_seconds == pytest.approx(found.move_seconds, abs=1e-5)
    # What starts anew in any case costs nothing more.
    assert found.cost is not None
    assert (found.cost.seconds, found.cost.restart_seconds) == (0.0, 32.0)


def test_a_plan_that_cannot_go_on_gets_a_longer_search_before_a_full_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budgets: list[float] = []

    def hardly(
        space: SearchSpace,
        *,
        cutoff_seconds: float,
        floor: float,
        budget: Budget,
        placing: Budget | None = None,
    ) -> Proven[Selected]:
        assert (placing is None) == (len(budgets) > 0), (
            "a placement has a limit of its own at first"
        )
        budgets.append(budget.left)
        if len(budgets) == 1:
            return Proven(None, floor, is_proven=False)
        return solve_ascending(space, cutoff_seconds=cutoff_seconds, floor=floor, budget=budget)

    monkeypatch.setattr(warm_search, "solve_ascending", hardly)
    monkeypatch.setattr(warm_search, "best_within", None)
    found = answered(lose_nodes={"a100": 1}, search_seconds=0.1)
    assert (found.verdict, found.keep_seconds) == ("move", None)
    assert budgets == pytest.approx([budgets[0], warm_search.LONGER[0] * budgets[0]])


@pytest.mark.slow
def test_nodes_that_come_pay_for_the_move_after_the_break_even() -> None:
    found = answered(add_nodes={"a100": 1}, search_seconds=2.0)
    assert found.verdict == "move"
    assert found.keep_seconds is not None
    assert found.break_even_iterations is not None
    assert found.cost is not None
    assert found.cost.seconds == 32.0
    assert (found.break_even_iterations - 1) * found.gain_seconds < 32.0
    assert found.break_even_iterations * found.gain_seconds >= 32.0
    assert found.saved_seconds == pytest.approx(500 * found.gain_seconds - 32.0)
    few = answered(
        add_nodes={"a100": 1}, iterations_left=found.break_even_iterations, search_seconds=2.0
    )
    assert few.verdict == "keep"
    assert few.move_seconds == found.move_seconds
    quick = answered(add_nodes={"a100": 1}, move_by="reshard", search_seconds=2.0)
    assert quick.cost is not None
    assert quick.cost.seconds == quick.cost.reshard_seconds < 32.0


@pytest.mark.slow
def test_a_restart_that_nobody_gave_is_estimated_and_said_so() -> None:
    made = make_plan(small_job("grpo", num_nodes=2))
    options = ReplanOptions(add_nodes={"a100": 1}, search_seconds=2.0)
    found = replan(made, options)
    assert found.cost is not None
    restart = found.cost.restart
    assert restart is not None
    assert (restart.checkpoint_estimated, restart.startup_estimated) == (True, True)
    actor = resolve(made.spec).models["actor"].architecture.num_parameters()
    # Weights in 16 bits, masters and two moments in 32, through two nodes' share of storage.
    written = 14 * actor / (2 * constants.STORAGE_WRITE_BYTES_PER_SECOND)
    assert restart.checkpoint_seconds == pytest.approx(written)
    assert restart.startup_seconds > constants.START_SECONDS
    assert found.cost.seconds == restart.checkpoint_seconds + restart.startup_seconds
    assert "(estimated)" in found.answer
    # A spec that says nothing has one iteration, of which none would be left.
    assert (found.iterations_left, found.saved_seconds) == (None, None)
    even = found.break_even_iterations
    assert found.verdict == "undecided"
    assert found.answer.startswith(f"move if more than {even:,} iterations are left:")
    given = options.model_copy(
        update={"iterations_left": 2, "startup_seconds": 0.0, "checkpoint_seconds": 0.0}
    )
    free = replan(made, given)
    assert free.cost is not None
    assert (free.cost.seconds, free.verdict) == (0.0, "move")
    assert "estimated" not in free.answer


def test_a_verdict_says_first_that_it_is_not_proven() -> None:
    cost = MoveCost(
        copies=[],
        total_bytes=0,
        most_bytes_per_gpu=0,
        reshard_seconds=0.0,
        restart_seconds=30.0,
        seconds=30.0,
    )
    verdict = Verdict(10.0, 8.0, cost, "restart", 15, 400, proven=False, gap=0.16)
    assert verdict.sentence().startswith("move, not proven best (gap 16 %): 10.00 → 8.00 s")
    assert replace(verdict, left=15).sentence().startswith("keep, not proven best (gap 16 %)")
    assert replace(verdict, proven=True).sentence().startswith("move: 10.00")
    cheaper = replace(verdict, proven=True, objective="price 3 → 2").sentence()
    assert cheaper.startswith("move: price 3 → 2, 10.00 → 8.00 s an iteration")
    assert kept(10.0, proven=False, gap=0.02).startswith("keep, not proven best (gap 2 %)")


@pytest.mark.slow
def test_the_kept_tables_answer_without_pricing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_plan(small_job("grpo", num_nodes=3))
    tables = TableCache()
    tables.study(made.spec)
    monkeypatch.setattr("automap.planner.explanation.study.price_candidates", None)
    for options in ({"measured": {"actor.train": 2.0}}, {"lose_nodes": {"a100": 1}}):
        assert replan(made, ReplanOptions.model_validate(options), tables=tables).tables_kept


@pytest.mark.slow
def test_a_single_node_left_is_priced_by_itself() -> None:
    """Of two GB200 nodes that share NVLink: on one of them weight syncs never leave the node."""
    spec = small_job("grpo", cluster__pools=[pool(2, gpu="gb200")], search__staleness=1)
    options = ReplanOptions(lose_nodes={"a100": 1}, search_seconds=4.0)
    smaller = make_plan(changed_spec(spec, options))
    found = replan(estimate(spec, smaller.placement()), options)
    assert smaller.transitions
    assert found.keep_seconds == pytest.approx(smaller.iteration_seconds, abs=1e-5)
    assert (found.verdict, found.tables_kept) == ("keep", False)


@pytest.mark.slow
def test_the_last_node_of_a_pool_leaves_the_others() -> None:
    """And a node that comes in place of a lost one leaves the cluster as it was."""
    both = small_job("grpo", cluster__pools=[pool(1), pool(1, name="l40s", gpu="l40s")])
    made = make_plan(both)
    found = replan(made, ReplanOptions(lose_nodes={"l40s": 1}, search_seconds=2.0))
    alone = make_plan(small_job("grpo"))
    assert found.move_seconds == pytest.approx(alone.iteration_seconds, rel=found.margin)
    assert found.cost is not None
    assert found.cost.restart_seconds > 0
    replaced = ReplanOptions(lose_nodes={"l40s": 1}, add_nodes={"l40s": 1})
    assert changed_spec(both, replaced) == both
    with pytest.raises(SpecError, match=r"lose_nodes\.l40s: 2 are lost, but the pool has 1 node"):
        changed_spec(both, ReplanOptions(lose_nodes={"l40s": 2}))


def test_sizes_between_the_steps_are_priced_by_themselves() -> None:
    """Above 32 nodes ranges grow by two nodes: of 34 nodes none has 33, but all that are left."""
    made = make_plan(small_job("grpo", cluster__pools=[pool(34, gpus_per_node=1)]))
    options = ReplanOptions(lose_nodes={"a100": 1})
    state = cluster_state_of(made, changed_spec(made.spec, options), options, TableCache())
    given = state.study
    assert max(int(copy.layouts.num_gpus.max()) for copy in given.tables.copies) == 33
    # Of 33 nodes the plan's search knew nothing, so its bound says nothing of them.
    assert warm_search.floor_of(made, state, []) == 0.0
    same = cluster_state_of(made, made.spec, ReplanOptions(), TableCache())
    assert warm_search.floor_of(made, same, []) == made.lower_bound_seconds


def test_a_search_that_is_cut_short_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given, seconds = study(plan().spec), plan().iteration_seconds
    cut_short = Proven(None, 0.0, is_proven=False)
    monkeypatch.setattr(ascending, "minimise_period", lambda *_, **__: cut_short)
    for limit in (1.02 * seconds, 0.999 * seconds):
        budget = Budget(Limits.within(20.0, seed=0))
        found = solve_ascending(given.space, cutoff_seconds=limit, floor=0.0, budget=budget)
        assert found.solution is None
        assert found.lower_bound <= min(limit, seconds) * (1 + 1e-12)
        assert limit < seconds or not found.is_proven


def errors(given: Study, *, seed: int) -> Factors:
    draw = np.random.default_rng(seed)
    ones = Factors.ones(given)
    return Factors(*(each * draw.uniform(0.5, 2.0, each.shape) for each in ones.parts()))


@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_soon_found_and_excluded_agrees_with_the_search(staleness: int) -> None:
    given = study(small_job("grpo", search__staleness=staleness))
    limits = Limits.within(20.0, seed=0)
    for seed in range(2):
        now = scaled(given, errors(given, seed=seed))
        best = best_within(now, inf, limits)
        assert best.solution is not None
        assert best.is_proven
        seconds = best.solution.timing.period
        found = solve_ascending(
            now.space, cutoff_seconds=1.5 * seconds, floor=0.0, budget=Budget(limits)
        )
        assert found.solution is not None
        assert found.lower_bound - 1e-5 <= seconds <= found.solution.timing.period + 1e-5
        nothing = best_within(now, 0.9999 * seconds, limits)
        assert nothing.is_proven
        assert nothing.solution is None
        assert best_within(now, 1.0001 * seconds, limits).solution is not None


@pytest.mark.parametrize(
    ("options", "field", "remedy"),
    [
        ({"measured": {"critic.train": 1.0}}, "measured.critic.train", "actor.generate"),
        ({"lose_nodes": {"h100": 1}}, "lose_nodes.h100", "use a100"),
        ({"lose_nodes": {"a100": 2}}, "lose_nodes.a100", "on other pools"),
        ({"add_nodes": {"a100": 10**8}}, "add_nodes.a100", "add at most"),
    ],
)
def test_what_the_plan_has_not_is_refused(
    options: dict[str, object], field: str, remedy: str
) -> None:
    with pytest.raises(SpecError) as refused:
        answered(**options)
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def home(first_gpu: int, **sizes: int) -> Placement:
    layout = Parallelism.model_validate({"sharding": "optimizer", **sizes})
    copy = CopyPlacement(
        id="actor",
        role="actor",
        kind="home",
        pool="a100",
        first_gpu=first_gpu,
        num_gpus=layout.num_gpus,
        layout=layout,
    )
    return Placement(copies=[copy], calls=[])


def test_moves_carry_what_gpus_lack() -> None:
    job = resolve(plan().spec)
    whole = home(0, data_parallel_size=4)
    assert move_between(job, whole, whole).total_bytes == 0
    away = move_between(job, whole, home(4, data_parallel_size=4))
    # To GPUs that have nothing: all weights four times, the optimizer state once.
    assert away.most_bytes_per_gpu * 4 == pytest.approx(away.total_bytes, abs=4)
    assert away.copies == ["actor"]
    # Half as many GPUs hold the weights already and lack half of their larger optimizer shards;
    # their old shard, a quarter, is theirs but for what lies elsewhere in the new order.
    fewer = move_between(job, whole, home(0, data_parallel_size=2))
    assert 0 < fewer.total_bytes < away.total_bytes / 2
    # Tensor parallelism 2 needs half of the weights that every GPU has: only optimizer state.
    split = move_between(job, whole, home(0, tensor_parallel_size=2, data_parallel_size=2))
    assert split.total_bytes < away.total_bytes - 3 * fewer.total_bytes / 4


def changed(made: Plan, **search: object) -> Plan:
    return made.model_copy(update={"search": made.search.model_copy(update=search)})


def test_a_bound_counts_only_where_it_was_proven() -> None:
    made, job = plan(), resolve(plan().spec)
    assert bound_is_proven(job, Plan.model_validate_json(made.model_dump_json(by_alias=True)))
    assert not bound_is_proven(job, changed(made, lower_bound=0.9 * made.search.lower_bound))
    assert not bound_is_proven(job, changed(made, space="fewer layouts"))
    assert not bound_is_proven(job, changed(made, proof=None))
    older = made.provenance.model_copy(update={"cost_model_version": "0"})
    assert not bound_is_proven(job, made.model_copy(update={"provenance": older}))
    looser = made.spec.model_copy(update={"name": "another"})
    assert not bound_is_proven(resolve(looser), made.model_copy(update={"spec": looser}))


@pytest.mark.slow
def test_a_plan_that_is_called_optimal_by_hand_is_searched_anew() -> None:
    target = {"search__target": "automap"}
    spec = small_job("ppo", num_nodes=2, search__strategy="standalone", **target)
    poor, best = make_plan(spec), make_plan(small_job("ppo", num_nodes=2, **target))
    assert best.iteration_seconds < 0.99 * poor.iteration_seconds
    search = poor.spec.search.model_copy(update={"strategy": None})
    forged = changed(poor, status="optimal", proof=best.search.proof).model_copy(
        update={"spec": poor.spec.model_copy(update={"search": search})}
    )
    found = replan(forged, ReplanOptions(search_seconds=2.0, iterations_left=10**6))
    assert found.verdict == "move"
    assert found.move_seconds == pytest.approx(best.iteration_seconds, rel=found.margin)


@pytest.mark.slow
def test_a_missed_target_is_told() -> None:
    spec = small_job("grpo", num_nodes=1)
    seconds = make_plan(spec).iteration_seconds
    target = {"search__objective": "fewest_gpus", "search__target_iteration_seconds": seconds + 1}
    made = make_plan(small_job("grpo", num_nodes=1, **target))
    call = next(call for call in made.calls if call.id == "actor.generate")
    slow = 10 * (call.end_seconds - call.start_seconds)
    found = replan(made, ReplanOptions(measured={"actor.generate": slow}, search_seconds=2.0))
    assert (found.verdict, found.target_missed, found.proven) == ("keep", True, True)
    assert found.answer.endswith(f"misses the target of {seconds + 1:g} s; no plan meets it")
    assert not replan(made, ReplanOptions(search_seconds=2.0)).target_missed


def test_the_placement_to_move_to_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "violations", lambda *_: ["a made-up violation"])
    with pytest.raises(RuntimeError, match="a made-up violation"):
        answered(lose_nodes={"a100": 1}, search_seconds=2.0)
