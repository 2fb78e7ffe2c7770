"""How long a whole run takes."""

from automap.planner.spec import WorkloadSpec


def run_seconds(workload: WorkloadSpec, period: float) -> float:
    """Start-up, iterations, checkpoints; a cyclic schedule also fills and drains, within noise."""
    return workload.iterations * period + fixed_seconds(workload)


def fixed_seconds(workload: WorkloadSpec) -> float:
    """Of the whole run those that no plan changes: start-up and checkpoints."""
    every = workload.checkpoint_every_iterations
    checkpoints = 0 if every is None else workload.iterations // every
    return workload.startup_seconds + checkpoints * workload.checkpoint_seconds
