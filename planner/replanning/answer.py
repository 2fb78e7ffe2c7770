"""Keep or move, in numbers."""

from dataclasses import replace
from math import ceil, inf
from typing import Any

from automap.planner.errors import InfeasibleError, Reason
from automap.planner.explanation.alternatives import SHOWN_SECONDS
from automap.planner.explanation.checked import checked
from automap.planner.explanation.result import CallDifference
from automap.planner.explanation.study import Study
from automap.planner.explanation.text import difference
from automap.planner.explanation.text import sizes as layout_text
from automap.planner.plan.price import objective_value, paid_gpus, price_per_second
from automap.planner.plan.types import Placement, Plan
from automap.planner.replanning.cluster_state import ClusterState
from automap.planner.replanning.moves import move_between
from automap.planner.replanning.restart import restart_of
from automap.planner.replanning.result import MoveCost, Replan, ReplanOptions
from automap.planner.replanning.verdict import Verdict, kept
from automap.planner.replanning.warm_search import WarmResult
from automap.planner.search import Selected
from automap.planner.spec import Objective


def answer_of(
    plan: Plan,
    options: ReplanOptions,
    state: ClusterState,
    now: Study,
    found: WarmResult,
    common: dict[str, Any],
) -> Replan:
    """The verdict and its reasons; `common` is what both verdicts state."""
    keep = found.keep_seconds
    target = plan.spec.search.target_iteration_seconds
    if found.solution is None:
        if keep is None:
            raise InfeasibleError(
                [Reason(summary="no placement was found on the nodes that are left")]
            )
        return _kept(keep, _value(now, state.planned, keep), found, common, target)
    placement = checked(state.study, found.solution)
    seconds = found.solution.timing.period
    cost = _cost(state, options, now, placement)
    mine = None if keep is None else _value(now, state.planned, keep)
    theirs = _value(now, placement, seconds)
    gain = inf if mine is None else mine - theirs
    if gain <= 0:
        assert keep is not None
        assert mine is not None
        return _kept(keep, mine, found, common, target)
    objective = plan.spec.search.objective
    price = 1.0 if objective == "throughput" else _price_per_second(now, placement)
    # What a whole run gains is shared out over its iterations.
    shares = plan.spec.workload.iterations if objective == "run_price" else 1
    priced = objective != "fewest_gpus" and mine is not None
    even = ceil(cost.seconds * price * shares / gain) if priced else None
    left = common["iterations_left"]
    saved = None if left is None else left * ((keep or seconds) - seconds) - cost.seconds
    gap = _gap(found, theirs)
    verdict = Verdict(keep, seconds, cost, options.move_by, even, left, found.is_proven, gap)
    if objective != "throughput" and mine is not None:
        verdict = replace(verdict, objective=_change(objective, mine, theirs))
    return Replan(
        verdict=verdict.word,
        answer=verdict.sentence(),
        move_seconds=seconds,
        relative_gap=gap,
        gain_seconds=(keep or seconds) - seconds,
        gain_share=0.0 if keep is None else 1 - seconds / keep,
        cost=cost,
        break_even_iterations=even,
        saved_seconds=saved,
        target_missed=mine == inf,
        changes=difference(state.planned, placement),
        calls=_call_differences(plan, state, now, found.solution, placement),
        placement=placement,
        **common,
    )


def _kept(
    keep: float, value: float, found: WarmResult, common: dict[str, Any], target: float | None
) -> Replan:
    missed = target if value == inf else None
    gap = 0.0 if missed else _gap(found, value)
    return Replan(
        verdict="keep",
        answer=kept(keep, proven=found.is_proven, gap=gap, missed=missed),
        move_seconds=None,
        relative_gap=gap,
        gain_seconds=0.0,
        gain_share=0.0,
        saved_seconds=0.0,
        target_missed=missed is not None,
        **common,
    )


def _change(objective: Objective, mine: float, theirs: float) -> str:
    names = {"fewest_gpus": "GPUs", "run_price": "price of the run"}
    before = "above the target" if mine == inf else f"{mine:,.4g}"
    return f"{names.get(objective, objective.replace('_', ' '))} {before} → {theirs:,.4g}"


def _gap(found: WarmResult, value: float) -> float:
    """How far below the objective's value the bound is, as a share of it."""
    return 0.0 if value in (0.0, found.lower_bound) else max(1 - found.lower_bound / value, 0.0)


def _value(now: Study, placement: Placement, period: float) -> float:
    """What the objective says of a placement."""
    spec = now.job.spec
    if period > (spec.search.target_iteration_seconds or inf):
        return inf
    paid = sum(paid_gpus(now.job.pools, placement.copies).values())
    return objective_value(spec, period, _price_per_second(now, placement), paid)


def _price_per_second(now: Study, placement: Placement) -> float:
    return price_per_second(now.job.pools, placement.copies)


def _cost(
    state: ClusterState, options: ReplanOptions, now: Study, placement: Placement
) -> MoveCost:
    """Bytes and seconds; where nodes are lost the plan would have to start anew in any case."""
    move = move_between(now.job, state.planned, placement)
    restart = restart_of(state.before, state.planned, placement, options)
    way = move.seconds if options.move_by == "reshard" else restart.seconds
    return MoveCost(
        copies=move.copies,
        total_bytes=move.total_bytes,
        most_bytes_per_gpu=move.most_bytes_per_gpu,
        reshard_seconds=move.seconds,
        restart_seconds=restart.seconds,
        restart=restart,
        seconds=max(way - restart.seconds, 0.0) if options.lose_nodes else way,
    )


def _call_differences(
    plan: Plan, state: ClusterState, now: Study, better: Selected, placement: Placement
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
        running = state.running
        was = planned.end_seconds - planned.start_seconds
        if running is not None:
            was = _seconds(now, running, index)
        old = state.sizes[planned.copy_id][1] if planned.copy_id else 0
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
    return float(now.tables.of(call, chosen[0]).seconds[chosen[1]])
