"""Advice on a run that has drifted from its plan: why it has, and whether to keep the plan or move.

Measured lengths go into the job's spec, and the running placement is priced anew with them: what
the cost model makes of longer responses is no error of its own. Only the rest corrects prices.
"""

import re
from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from automap.planner import catalogue
from automap.planner.errors import PlanningError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Placement, Plan, ResultModel
from automap.planner.replanning.result import Replan, ReplanOptions
from automap.planner.runs.drift_detection import (
    CallSeconds,
    Cause,
    Deviation,
    Drift,
    causes_of,
    drift,
)
from automap.planner.runs.iterations import QUANTILES, ObservedLengths, Window
from automap.planner.spec import ClusterSpec, PositiveInt
from automap.planner.spec.lengths import LengthSpec

if TYPE_CHECKING:
    from automap.planner.explanation.study import TableCache

LEVELS = (0.5, 0.9, 0.99)
"""Quantile levels by which lengths are observed, as QUANTILES names them."""
SEARCH_SECONDS = 2.0
"""Most seconds of search for a better plan: the run that it is for may share this machine."""


class RunWindow(ResultModel):
    """What is known of a run while it goes on: its latest iterations, and its first."""

    window: Window
    """The run's latest iterations."""
    first: Window | None = None
    """The run's first iterations after the warm-up, if they are others than the latest."""
    iterations_left: PositiveInt
    threshold: float


class WithoutNode(ResultModel):
    """The plan that leaves out the node of a slow device, at the prices that the others have."""

    pool: str
    node: int
    """Number of the node, counted over the pool."""
    iteration_seconds: float
    gain_seconds: float
    """Seconds per iteration that the move saves over what was measured."""
    cost_seconds: float
    """Seconds of the restart that the move takes."""
    break_even_iterations: int | None
    """Iterations after which the move has paid for its restart; null: it never does."""


class Suggestion(ResultModel):
    """Why a running job takes other than planned, and whether another plan pays."""

    after_iteration: int
    window: Window
    drift: Drift
    causes: list[Cause] = Field(default=[])
    response_length: LengthSpec | None = None
    """Observed response lengths in the form of a spec; null: neither their mean nor a percentile is
    beyond the threshold."""
    replan: Replan | None = None
    """Comparison of keeping the plan and moving; null: no other plan could be looked for, and
    `problem` says why."""
    without_node: WithoutNode | None = None
    problem: str | None = None


def drift_of_window(plan: Plan, window: Window, threshold: float) -> Drift:
    """Compare the latest iterations of a run with its plan."""
    lengths = window.lengths
    tokens = None
    if lengths is not None and lengths.mean is not None:
        planned = plan.spec.workload.response_length.mean_tokens
        tokens = Deviation(planned=planned, measured=lengths.mean)
    known = planned_seconds(plan)
    calls = {
        name: Deviation(planned=known[name], measured=seconds)
        for name, seconds in window.calls.items()
        if known.get(name)
    }
    iteration = Deviation(planned=plan.iteration_seconds, measured=window.seconds)
    return drift(iteration, calls, response_tokens=tokens, threshold=threshold)


def planned_seconds(plan: Plan) -> dict[str, float]:
    """Seconds that a run measures of calls and weight syncs by name, in time order."""
    timed = [
        (call.stage, call.start_seconds, call.end_seconds - call.seconds_by_part.between, call.id)
        for call in plan.calls
    ]
    timed += [
        (sync.stage, sync.start_seconds, sync.end_seconds, f"{sync.role}.sync")
        for sync in plan.transitions
    ]
    return seconds_in_order(timed, iteration_seconds=plan.iteration_seconds)


def seconds_in_order(
    timed: Iterable[tuple[int, float, float, str]], *, iteration_seconds: float
) -> dict[str, float]:
    """Seconds by name, in time order, of what has a stage, a start, an end and a name."""
    # In a cyclic schedule what crosses the end of a period ends before it starts.
    return {
        name: end - start if end >= start else end - start + iteration_seconds
        for _, start, end, name in sorted(timed)
    }


def suggest(plan: Plan, run_window: RunWindow, *, tables: "TableCache | None" = None) -> Suggestion:
    """Say why a run has drifted, and whether to keep its plan or to move.

    That no other plan can be found is part of the answer, not an error. `tables` keeps what was
    priced for the next question.
    """
    found = drift_of_window(plan, run_window.window, run_window.threshold)
    lengths = _lengths(plan, run_window.window.lengths, found)
    problem = None
    basis = plan
    if lengths is not None:
        try:
            basis = _with_lengths(plan, lengths)
        except PlanningError as error:
            problem = f"the plan cannot be priced with the lengths that were measured: {error}"
    calls = _calls(plan, basis, run_window)
    causes = causes_of(
        calls, run_window.window, iteration=found.iteration_seconds, threshold=run_window.threshold
    )
    options = ReplanOptions(
        measured={name: each.measured for name, each in calls.items()},
        iterations_left=run_window.iterations_left,
        search_seconds=SEARCH_SECONDS,
    )
    replan, without = None, None
    try:
        replan = _replan(basis, options, tables)
        without = _without_node(basis, causes, calls, run_window, tables)
    except PlanningError as error:
        problem = problem or str(error)
    return Suggestion(
        after_iteration=run_window.window.last,
        window=run_window.window,
        drift=found,
        causes=causes,
        response_length=lengths,
        replan=replan,
        without_node=without,
        problem=problem,
    )


def _replan(plan: Plan, options: ReplanOptions, tables: "TableCache | None") -> Replan:
    from automap.planner.replanning.replan import (  # the search, which only planner processes need
        replan,
    )

    return replan(plan, options, tables=tables)


def _lengths(plan: Plan, seen: ObservedLengths | None, found: Drift) -> LengthSpec | None:
    """Observed lengths as a spec, if their mean or a percentile is beyond the threshold."""
    if seen is None or found.response_tokens is None:
        return None
    before = plan.spec.workload.response_length
    observed = seen.spec(before)
    pairs = [found.response_tokens]
    if observed.p50 is not None:  # the tail may have grown, and the mean not
        lengths, weights = before.distribution()
        planned = np.interp(LEVELS, np.cumsum(weights), lengths)
        now = [float(getattr(observed, name)) for name in QUANTILES]
        pairs += [
            Deviation(planned=float(p), measured=n) for p, n in zip(planned, now, strict=True)
        ]
    return observed if any(pair.beyond(found.threshold) for pair in pairs) else None


def _with_lengths(plan: Plan, lengths: LengthSpec) -> Plan:
    """The running placement, priced with other lengths."""
    from automap.planner.planning import estimate

    workload = plan.spec.workload.model_copy(update={"response_length": lengths})
    return estimate(plan.spec.model_copy(update={"workload": workload}), plan.placement())


def _calls(plan: Plan, basis: Plan, run_window: RunWindow) -> dict[str, CallSeconds]:
    """The plan's calls that were measured."""
    planned, expected = planned_seconds(plan), planned_seconds(basis)
    first = run_window.first
    share = _length_share(plan, run_window)
    return {
        name: CallSeconds(
            planned=planned[name],
            expected=expected[name],
            first=None if first is None else first.calls.get(name),
            first_expected=planned[name] + share * (expected[name] - planned[name]),
            measured=measured,
        )
        for name, measured in run_window.window.calls.items()
        if planned.get(name) and expected.get(name) and measured > 0
    }


def _length_share(plan: Plan, run_window: RunWindow) -> float:
    """Share of the way from planned to latest mean length that the first iterations had gone."""
    window, first = run_window.window.lengths, run_window.first and run_window.first.lengths
    planned = plan.spec.workload.response_length.mean_tokens
    if not window or not first or window.mean is None or first.mean is None:
        return 0.0
    if window.mean == planned:
        return 0.0
    return min(max((first.mean - planned) / (window.mean - planned), 0.0), 1.0)


def _without_node(
    basis: Plan,
    causes: list[Cause],
    calls: dict[str, CallSeconds],
    run_window: RunWindow,
    tables: "TableCache | None",
) -> WithoutNode | None:
    """Price the plan without the slow device's node, where the pool has another node."""
    slow = next((cause for cause in causes if cause.device is not None), None)
    place = None if slow is None else node_of(basis, slow.device or "")
    if slow is None or place is None or place[2] < 2:
        return None
    pool, node, _ = place
    healthy = {n: each.measured for n, each in calls.items() if n not in slow.calls}
    options = ReplanOptions(
        measured=healthy,
        lose_nodes={pool: 1},
        iterations_left=run_window.iterations_left,
        search_seconds=SEARCH_SECONDS,
    )
    try:
        found = _replan(basis, options, tables)
    except PlanningError:  # the job does not fit on one node less
        return None
    seconds = found.move_seconds or found.keep_seconds
    if seconds is None:
        return None
    cost = _restart_seconds(basis, found.placement or basis.placement())
    gain = run_window.window.seconds - seconds
    return WithoutNode(
        pool=pool,
        node=node,
        iteration_seconds=seconds,
        gain_seconds=gain,
        cost_seconds=cost,
        break_even_iterations=ceil(cost / gain) if gain > 0 else None,
    )


def _restart_seconds(plan: Plan, other: Placement) -> float:
    from automap.planner.replanning.restart import restart_of

    return restart_of(resolve(plan.spec), plan.placement(), other, ReplanOptions()).seconds


def node_of(plan: Plan, device: str) -> tuple[str, int, int] | None:
    """Pool and node of POOL[NUMBER], and how many nodes the pool has; None: it has none such."""
    match = re.fullmatch(r"(.+)\[(\d+)\]", device)
    assert isinstance(plan.spec.cluster, ClusterSpec), "a plan has its pools"
    pools = {pool.name: pool for pool in plan.spec.cluster.pools}
    if match is None or match[1] not in pools:
        return None
    pool = pools[match[1]]
    per_node = pool.gpus_per_node
    if per_node is None:
        per_node = catalogue.node_type(catalogue.gpu_type(pool.gpu).node).gpus_per_node
    return pool.name, int(match[2]) // per_node, pool.num_nodes
