"""What a job's objective says of a plan: the one number that is to be least."""

from typing import TypeVar

from automap.planner.layout import FloatArray
from automap.planner.plan.run_time import fixed_seconds
from automap.planner.spec import JobSpec

Value = TypeVar("Value", float, FloatArray)


def objective_value(spec: JobSpec, period: Value, price_per_second: float, gpus: int) -> Value:
    """Seconds, price units or paid GPUs; a target is the caller's to see to."""
    objective = spec.search.objective
    if objective == "throughput":
        return period
    if objective == "price":
        return period * price_per_second
    if objective == "run_price":
        workload = spec.workload
        return (workload.iterations * period + fixed_seconds(workload)) * price_per_second
    return 0 * period + gpus
