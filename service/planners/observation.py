"""What metrics note of a planner process: how long it takes, what it proves, how it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from automap.planner.spec import ClusterSpec
from automap.service.errors.domain import (
    PlannerCancelledError,
    PlannerDiedError,
    PlannerMemoryError,
    PlannerProcessError,
    PlannerTimeoutError,
)
from automap.service.planners.messages import (
    Answer,
    Done,
    InfeasibleFailure,
    NoSolutionFailure,
    PlannerTask,
    PlanTask,
    spec_of,
)
from automap.service.telemetry.metrics import Metrics

_ENDS: dict[type[PlannerProcessError], str] = {
    PlannerMemoryError: "memory",
    PlannerTimeoutError: "time",
    PlannerDiedError: "killed",
    PlannerCancelledError: "cancelled",
}


@contextmanager
def observed(
    request: PlannerTask, metrics: Metrics, *, serves: str
) -> Iterator[Callable[[Answer], None]]:
    """Count what a process does for a request; what is yielded takes note of its answer."""

    def note(answer: Answer) -> None:
        if isinstance(request, PlanTask):
            _note_proof(answer, metrics)

    try:
        with metrics.busy_planner(serves), _timed(request, metrics):
            yield note
    except PlannerProcessError as error:
        metrics.planner_ends.labels(serves, _ENDS.get(type(error), "failed")).inc()
        raise


def _timed(request: PlannerTask, metrics: Metrics) -> Any:
    spec = spec_of(request)
    cluster = None if spec is None else spec.cluster
    pools = cluster.pools if isinstance(cluster, ClusterSpec) else []
    return metrics.timed_planning(
        task=request.kind,
        num_gpus=sum(pool.num_nodes * (pool.gpus_per_node or 0) for pool in pools),
        objective="" if spec is None else spec.search.objective,
    )


def _note_proof(answer: Answer, metrics: Metrics) -> None:
    match answer:
        case Done(result=dict() as plan):
            gap = plan.get("relative_gap")
            gap = float(gap) if isinstance(gap, int | float) else 0.0
            metrics.count_proof("gap" if gap > 0 else "optimal", gap)
        case InfeasibleFailure():
            metrics.count_proof("infeasible")
        case NoSolutionFailure():
            metrics.count_proof("cut")
        case _:
            pass
