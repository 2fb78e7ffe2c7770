"""What metrics note of a planner process: how long it takes, what it proves, how it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from automap.planner.catalogue import gpu_type, node_type
from automap.planner.errors import SpecError
from automap.planner.spec import ClusterSpec, JobSpec
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
    return metrics.timed_planning(
        task=request.kind,
        num_gpus=0 if spec is None else _num_gpus(spec),
        objective="" if spec is None else spec.search.objective,
    )


def _num_gpus(spec: JobSpec) -> int:
    """How many GPUs the cluster has; 0: it names what the catalogue does not know."""
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    try:
        nodes = [node_type(gpu_type(pool.gpu).node) for pool in pools]
    except SpecError:
        return 0
    return sum(
        pool.num_nodes * (pool.gpus_per_node or node.gpus_per_node)
        for pool, node in zip(pools, nodes, strict=True)
    )


def _note_proof(answer: Answer, metrics: Metrics) -> None:
    match answer:
        case Done(result={"search": {"status": "given"}}):  # a strategy placed it
            metrics.count_proof("given")
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
