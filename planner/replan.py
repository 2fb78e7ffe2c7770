"""Keep the running plan, or move? With measured seconds, or on a changed cluster.

Measured seconds correct the prices of their role and kind of call in every option; nothing is
priced again. The search begins with the running plan: first on ranges as large as its own, then
among everything that is better by more than a margin. It ends by a proof or by its limit.
"""

import time
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np

from planner.assembly import price_copy
from planner.errors import InfeasibleError, Reason, SpecError
from planner.explain.alternatives import SHOWN_SECONDS
from planner.explain.contenders import contender
from planner.explain.factors import Factors, scaled
from planner.explain.result import CallDifference
from planner.explain.solving import Solved, best_within, limits_of
from planner.explain.study import Narrowed, Study, is_kept, located, restricted, study, timing_of
from planner.explain.words import difference
from planner.explain.words import sizes as layout_text
from planner.moves import move_between
from planner.payment import paid_gpus, price_per_second
from planner.replan_result import Correction, MoveCost, Replan, ReplanOptions
from planner.result import Placement, Plan
from planner.search.attempts import attempt
from planner.search.pruning import prune
from planner.search.search import Selected, complete, rows_of, search
from planner.search.sizes import SizeSearch, rows_of_sizes
from planner.search.solve import Budget, Limits, minimise_period
from planner.search.space import (
    Arena,
    Rows,
    all_rows,
    arena,
    least_period,
    rows_up_to,
    rows_with_counts,
    rows_within,
)
from planner.spec import JobSpec

MARGIN = 0.001
"""A plan that is better by a smaller share is no reason to move, and not looked for."""
NEAR_SHARE = 0.5
"""Of what is left of the limit: what the solver may take for one choice of sizes."""
ROUND_SECONDS = 0.01
"""Deterministic seconds that a choice of sizes is counted as besides the solver's: building it."""
FULL_SEARCH_FROM = 0.2
"""Deterministic seconds that must be left for an ordinary search to begin."""
NEAR_SIZES = 2
"""Sizes per copy that this search tries where GPUs were lost: the plan's own and the next below."""
SLOWER = 1.25
"""Times what the lost GPUs would account for: how slow a first plan without them may be."""


def replan(plan: Plan, options: ReplanOptions) -> Replan:
    """Keep or move, with gain, cost and break-even.

    Raises:
        SpecError: a call, pool or number of nodes that the plan does not have.
        InfeasibleError: no placement fits on what is left of the cluster.
    """
    started = time.perf_counter()
    corrections = _corrections(plan, options)
    spec = changed_spec(plan.spec, options)
    situation = _situation(plan, spec, options)
    factors = _factors(situation.study, corrections)
    now = scaled(situation.study, factors)
    limits = Limits.within(options.search_seconds, seed=plan.spec.search.seed)
    floor = _floor(plan, options, corrections)
    found = _searched(now, situation, factors, limits, floor)
    common = {
        "keep_seconds": found.keep_seconds,
        "lower_bound_seconds": found.bound,
        "proven": found.proven,
        "margin": MARGIN,
        "iterations_left": options.iterations_left or spec.workload.iterations,
        "corrections": corrections,
        "tables_kept": situation.tables_kept,
        "replanned_in_seconds": 0.0,
    }
    answer = _answer(plan, options, situation, now, found, common)
    seconds = time.perf_counter() - started
    return answer.model_copy(update={"replanned_in_seconds": seconds})


def changed_spec(spec: JobSpec, options: ReplanOptions) -> JobSpec:
    """The spec of the job on the changed cluster."""
    assert not isinstance(spec.cluster, str), "a plan has its pools"
    pools = {pool.name: pool for pool in spec.cluster.pools}
    for field, nodes in (("lose_nodes", options.lose_nodes), ("add_nodes", options.add_nodes)):
        for name, count in nodes.items():
            if name not in pools:
                known = ", ".join(pools)
                raise SpecError(
                    f"{field}.{name}", "the cluster has no such pool", remedy=f"use {known}"
                )
            change = count if field == "add_nodes" else -count
            left = pools[name].num_nodes + change
            if left < 1:
                raise SpecError(
                    f"{field}.{name}",
                    f"the pool has {pools[name].num_nodes} nodes, {count} cannot be lost",
                    remedy=f"lose at most {pools[name].num_nodes - 1}",
                )
            pools[name] = pools[name].model_copy(update={"num_nodes": left})
    cluster = spec.cluster.model_copy(update={"pools": list(pools.values())})
    return spec.model_copy(update={"cluster": cluster})


@dataclass(frozen=True, slots=True)
class _Situation:
    """Where the plan stands: the tables of the cluster as it is now, and what goes on there."""

    study: Study
    running: Selected | None
    """None: its GPUs are gone."""
    planned: Placement
    sizes: dict[str, tuple[str, int]]
    """Copy → pool and GPUs in the running plan."""
    first_limit: float
    """Seconds within which a first plan is looked for."""
    tables_kept: bool


def _situation(plan: Plan, spec: JobSpec, options: ReplanOptions) -> _Situation:
    """Tables that are kept serve where they can: those of the whole cluster without lost nodes."""
    placement = plan.placement()
    kept = is_kept(spec)
    if options.add_nodes or kept:
        given = study(spec)
    else:
        kept = is_kept(plan.spec)
        whole = study(plan.spec)
        given = _without_nodes(whole, options.lose_nodes)
    sizes = {copy.id: (copy.pool, copy.num_gpus) for copy in placement.copies}
    usable = {pool.name: pool.num_gpus for pool in given.problem.pools}
    running = None
    if all(copy.first_gpu + copy.num_gpus <= usable[copy.pool] for copy in placement.copies):
        given, running = located(given, placement, timing_of(given, plan))
    lost = (
        sum(usable.values()) / sum(pool.num_gpus for pool in study(plan.spec).problem.pools)
        if options.lose_nodes
        else 1.0
    )
    return _Situation(
        given, running, placement, sizes, SLOWER * plan.iteration_seconds / min(lost, 1.0), kept
    )


def _without_nodes(given: Study, lose_nodes: dict[str, int]) -> Study:
    """The study on the first nodes of every pool: nodes of a pool are as good as each other."""
    if not lose_nodes:
        return given
    pools = tuple(
        replace(pool, num_gpus=pool.num_gpus - lose_nodes.get(pool.name, 0) * pool.gpus_per_node)
        for pool in given.problem.pools
    )
    rows = rows_up_to(given.tables, tuple(pool.num_gpus for pool in pools))
    problem = replace(given.problem, pools=pools)
    if not complete(Arena(given.tables, problem, rows), rows):
        raise InfeasibleError(
            [Reason(summary="no layout of some model fits on the GPUs that are left")]
        )
    return replace(restricted(given, rows), problem=problem)


def _corrections(plan: Plan, options: ReplanOptions) -> list[Correction]:
    calls = {call.id: call for call in plan.calls}
    syncs = {f"{sync.role}.sync": sync for sync in plan.transitions}
    found = []
    for name, measured in options.measured.items():
        event = calls.get(name) or syncs.get(name)
        if event is None:
            raise SpecError(
                f"measured.{name}",
                "the plan has no such call",
                remedy=f"use some of {', '.join([*calls, *syncs])}",
            )
        predicted = event.end_seconds - event.start_seconds
        if predicted <= 0:
            raise SpecError(
                f"measured.{name}", "the plan takes it to last no time", remedy="leave it out"
            )
        kind = calls[name].kind if name in calls else "sync"
        found.append(
            Correction(
                role=event.role,
                kind=kind,
                measured_seconds=measured,
                predicted_seconds=predicted,
                ratio=measured / predicted,
            )
        )
    return found


def factors_of(given: Study, plan: Plan, options: ReplanOptions) -> Factors:
    """What measured seconds make of the prices of a plan's job."""
    return _factors(given, _corrections(plan, options))


def _factors(given: Study, corrections: list[Correction]) -> Factors:
    """Of several calls of one role and kind all their seconds together decide."""
    factors = Factors.ones(given)
    measured: dict[tuple[str, str], list[Correction]] = {}
    for each in corrections:
        measured.setdefault((each.role, each.kind), []).append(each)
    for (role, kind), group in measured.items():
        ratio = sum(c.measured_seconds for c in group) / sum(c.predicted_seconds for c in group)
        for index, call in enumerate(given.job.dataflow.calls):
            if (call.role, call.kind) == (role, kind):
                factors.work[index] = factors.reshard[index] = ratio
        for index, copy in enumerate(given.tables.copies):
            if kind == "sync" and copy.role == role:
                factors.sync[index] = ratio
    return factors


@dataclass(frozen=True, slots=True)
class _Found:
    """What the search came to."""

    keep_seconds: float | None
    better: Selected | None
    """None: nothing is better than the running plan by more than the margin, or was found."""
    bound: float
    proven: bool


def _floor(plan: Plan, options: ReplanOptions, corrections: list[Correction]) -> float:
    """Seconds below which the plan's own proof leaves nothing, whatever was measured or lost.

    Longer calls and fewer GPUs shorten no plan, and where every call takes at least r times as
    long, r ≤ 1, every plan does.
    """
    if options.add_nodes or plan.search.status == "given":
        return 0.0
    return min([1.0, *(each.ratio for each in corrections)]) * plan.lower_bound_seconds


def _searched(
    now: Study, situation: _Situation, factors: Factors, limits: Limits, floor: float
) -> _Found:
    """The best plan under corrected prices, warm-started by the running one."""
    keep = None
    if situation.running is not None:
        keep = float(contender(situation.study, situation.running).periods([factors])[0])
    if now.job.spec.search.objective != "throughput":
        solved = best_within(now, inf, limits)
        return _Found(keep, solved.selected, solved.lower_bound, solved.proven)
    if keep is not None and floor >= keep * (1 - MARGIN):
        return _Found(keep, None, floor, True)
    best = None if keep is not None else _anywhere(now, limits)
    limit = _limit(keep, best, situation)
    budget = Budget(limits)
    near = _solved(now, _near(now, situation), limit, budget)
    if near is not None:
        best, limit = near, near.timing.period * (1 - MARGIN)
    quick = _by_sizes(now, limit, budget)
    if quick.selected is not None:
        best, limit = quick.selected, quick.selected.timing.period * (1 - MARGIN)
    bound, proven = min(quick.lower_bound, limit), quick.proven
    if not proven and budget.left > FULL_SEARCH_FROM:
        found = _within(now, all_rows(now.tables), limit, budget.rest())
        best = found.selected or best
        bound, proven = max(bound, min(found.lower_bound, limit)), found.proven
    if best is None and keep is None:
        solved = best_within(now, inf, limits_of(now))
        best, bound, proven = solved.selected, solved.lower_bound, solved.proven
    return _Found(keep, best, max(bound, min(floor, limit)), proven or floor >= limit)


def _limit(keep: float | None, best: Selected | None, situation: _Situation) -> float:
    """Seconds that a plan must not exceed to be worth looking for."""
    known = [keep, None if best is None else best.timing.period]
    least = min((seconds for seconds in known if seconds is not None), default=None)
    return situation.first_limit if least is None else least * (1 - MARGIN)


def _solved(now: Study, rows: Rows, limit: float, budget: Budget) -> Selected | None:
    """The best of a few rows, if it is within the limit and found in time."""
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return None
    pruned = prune(whole.options(rows), upper_bound_seconds=limit)
    if pruned.hopeless:
        return None
    some = max(budget.left * NEAR_SHARE, ROUND_SECONDS)
    outcome = minimise_period(
        pruned.problem,
        limits=replace(budget.limits, deterministic_seconds=some),
        horizon_seconds=limit,
    )
    budget.take(outcome.deterministic_seconds + ROUND_SECONDS)
    return None if outcome.solution is None else rows_of(pruned.problem, outcome.solution)


def _by_sizes(now: Study, limit: float, budget: Budget) -> Solved:
    """The sizes of the least relaxed period, solved in turn until one holds the limit.

    The ordinary search also widens every cut, which pays off in long searches alone.
    """
    rows = all_rows(now.tables)
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return Solved(None, limit, True)
    few = Narrowed.of(now, rows)
    part = arena(few.study.tables, few.study.problem)
    sizes = SizeSearch(part, part.rows, horizon_seconds=limit)
    sizes.minimise_period()
    bound = least_period(part.tables, part.problem, part.rows) or 0.0
    while not budget.spent:
        relaxed = sizes.best(budget)
        if relaxed.sizes is None:
            return Solved(None, limit if relaxed.proven else relaxed.bound_seconds, relaxed.proven)
        bound = relaxed.bound_seconds
        budget.take(ROUND_SECONDS)
        rows = rows_of_sizes(part, part.rows, relaxed.sizes)
        found = _solved(few.study, rows, limit, budget)
        if found is not None:
            return Solved(few.original(found), bound, False)
        sizes.rule_out(relaxed.sizes)
    return Solved(None, bound, False)


def _within(now: Study, rows: Rows, limit: float, limits: Limits) -> Solved:
    """The best of some rows within a limit; what cannot hold it is taken away first."""
    whole = Arena(now.tables, now.problem, rows)
    if complete(whole, rows):
        rows = rows_within(now.tables, now.problem, rows, limit)
    if not complete(whole, rows):
        return Solved(None, limit, True)
    few = Narrowed.of(now, rows)
    part = arena(few.study.tables, few.study.problem)
    found = search(part, limits=limits, incumbent=None, horizon_seconds=limit)
    selected = None if found.selected is None else few.original(found.selected)
    return Solved(selected, found.lower_bound_seconds, found.proven)


def _anywhere(now: Study, limits: Limits) -> Selected | None:
    """Some placement, at once: everything on the largest range that there is."""
    largest = {int(copy.layouts.num_gpus.max()) for copy in now.tables.copies if len(copy)}
    few = Narrowed.of(now, rows_with_counts(now.tables, largest))
    (tried,) = attempt(arena(few.study.tables, few.study.problem), ["colocate_all"], limits=limits)
    return None if tried.selected is None else few.original(tried.selected)


def _near(now: Study, situation: _Situation) -> Rows:
    """Ranges as large as the running plan's; where GPUs were lost, also a little smaller."""
    copies = []
    for copy in now.tables.copies:
        planned = situation.sizes.get(copy.id)
        if planned is None:
            copies.append(np.zeros(len(copy), dtype=bool))
            continue
        pool = next(i for i, p in enumerate(now.problem.pools) if p.name == planned[0])
        fits = (copy.pool == pool) & (copy.layouts.num_gpus <= planned[1])
        tried = 1 if situation.running is not None else NEAR_SIZES
        counts = np.unique(copy.layouts.num_gpus[fits])[-tried:]
        copies.append(fits & np.isin(copy.layouts.num_gpus, counts))
    return Rows(copies, [copies[table.copy][table.copy_row] for table in now.tables.calls])


def _answer(
    plan: Plan,
    options: ReplanOptions,
    situation: _Situation,
    now: Study,
    found: _Found,
    common: dict[str, Any],
) -> Replan:
    """The verdict and its reasons; `common` is what both verdicts state."""
    keep = found.keep_seconds
    if found.better is None:
        if keep is None:
            raise InfeasibleError([Reason(summary="no placement was found on what is left")])
        return _kept(keep, found, common)
    placement = now.placement(found.better)
    seconds = found.better.timing.period
    cost = _cost(plan, options, now, placement)
    mine = None if keep is None else _value(now, situation.planned, keep)
    theirs = _value(now, placement, seconds)
    gain = inf if mine is None else mine - theirs
    if gain <= 0:
        assert keep is not None
        return _kept(keep, found, common)
    price = _price_per_second(now, placement) if plan.spec.search.objective == "price" else 1.0
    priced = plan.spec.search.objective != "fewest_gpus" and mine is not None
    even = ceil(cost.seconds * price / gain) if priced else None
    left = common["iterations_left"]
    saved = left * ((keep or seconds) - seconds) - cost.seconds
    moves = even is None or even < left
    return Replan(
        verdict="move" if moves else "keep",
        answer=_sentence(keep, seconds, cost, even, left, moves=moves),
        move_seconds=seconds,
        relative_gap=max(1 - found.bound / theirs, 0.0) if theirs else 0.0,
        gain_seconds=(keep or seconds) - seconds,
        gain_share=0.0 if keep is None else 1 - seconds / keep,
        cost=cost,
        break_even_iterations=even,
        saved_seconds=saved,
        changes=difference(situation.planned, placement),
        calls=_call_differences(plan, situation, now, found.better, placement),
        placement=placement,
        **common,
    )


def _kept(keep: float, found: _Found, common: dict[str, Any]) -> Replan:
    gap = max(1 - found.bound / keep, 0.0)
    words = f"no plan is better by more than {100 * MARGIN:.2g} %"
    if not found.proven:
        words = f"the search found nothing better, gap {100 * gap:.2g} %"
    return Replan(
        verdict="keep",
        answer=f"keep: {keep:.2f} s an iteration, {words}",
        move_seconds=None,
        relative_gap=gap,
        gain_seconds=0.0,
        gain_share=0.0,
        saved_seconds=0.0,
        **common,
    )


def _sentence(
    keep: float | None, seconds: float, cost: MoveCost, even: int | None, left: int, *, moves: bool
) -> str:
    if keep is None:
        return f"move: the running plan's GPUs are gone; the best plan found takes {seconds:.2f} s"
    gain = f"{keep - seconds:.2f} s ({100 * (1 - seconds / keep):.1f} %) an iteration"
    if moves:
        paid = "" if even is None else f", paid back after {even:,} of {left:,} iterations"
        return f"move: {keep:.2f} → {seconds:.2f} s, {gain}; it takes {cost.seconds:.1f} s{paid}"
    return (
        f"keep: {gain} could be gained, but the move takes {cost.seconds:.1f} s, which "
        f"{even:,} iterations pay back and {left:,} are left"
    )


def _value(now: Study, placement: Placement, period: float) -> float:
    """What the objective says of a placement."""
    search_spec = now.job.spec.search
    if search_spec.objective == "throughput":
        return period
    if search_spec.objective == "price":
        return period * _price_per_second(now, placement)
    copies = [price_copy(now.pricing, copy) for copy in placement.copies]
    missed = period > (search_spec.target_iteration_seconds or inf)
    return inf if missed else float(sum(paid_gpus(now.job, copies).values()))


def _price_per_second(now: Study, placement: Placement) -> float:
    return price_per_second(now.job, [price_copy(now.pricing, copy) for copy in placement.copies])


def _cost(plan: Plan, options: ReplanOptions, now: Study, placement: Placement) -> MoveCost:
    """Bytes and seconds; where nodes are lost the plan would have to start anew in any case."""
    move = move_between(now.job, plan.placement(), placement)
    workload = plan.spec.workload
    startup = options.startup_seconds
    startup = workload.startup_seconds if startup is None else startup
    restart = startup + workload.checkpoint_seconds
    way = move.seconds if options.move_by == "reshard" else restart
    return MoveCost(
        copies=move.copies,
        total_bytes=move.total_bytes,
        most_bytes_per_gpu=move.most_bytes_per_gpu,
        reshard_seconds=move.seconds,
        restart_seconds=restart,
        seconds=max(way - restart, 0.0) if options.lose_nodes else way,
    )


def _call_differences(
    plan: Plan, situation: _Situation, now: Study, better: Selected, placement: Placement
) -> list[CallDifference]:
    """The calls that take other seconds, both with corrected prices."""
    counts = {copy.id: copy.num_gpus for copy in placement.copies}
    layouts = {copy.id: copy.layout for copy in placement.copies}
    before = {call.id: call for call in plan.calls}
    calls = {call.id: call for call in placement.calls}
    found = []
    for index, call in enumerate(now.job.dataflow.calls):
        mine, planned = calls[call.id], before[call.id]
        after = _seconds(now, better, index)
        running = situation.running
        was = planned.end_seconds - planned.start_seconds
        if running is not None:
            was = _seconds(now, running, index)
        old = situation.sizes[planned.copy_id][1] if planned.copy_id else 0
        new = counts[mine.copy_id] if mine.copy_id else 0
        if abs(after - was) >= SHOWN_SECONDS or old != new:
            layout = mine.parallelism or layouts.get(mine.copy_id or "")
            found.append(
                CallDifference(
                    id=call.id,
                    plan_seconds=was,
                    seconds=after,
                    plan_num_gpus=old,
                    num_gpus=new,
                    layout=layout_text(layout),
                )
            )
    return sorted(found, key=lambda d: -abs(d.seconds - d.plan_seconds))


def _seconds(now: Study, selected: Selected, call: int) -> float:
    chosen = selected.call_rows[call]
    if chosen is None:
        return now.problem.calls[call].fixed_seconds
    table = next(t for t in now.tables.calls if (t.call, t.copy) == (call, chosen[0]))
    return float(table.seconds[chosen[1]])
