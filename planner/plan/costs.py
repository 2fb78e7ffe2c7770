"""What a plan will cost before it is run: an iteration, the run, a million tokens; by GPU type."""

import math
from collections.abc import Sequence

from automap.planner.catalogue.hardware import Pool
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve_pool
from automap.planner.plan.price import paid_gpus
from automap.planner.plan.types import Plan, ResultModel


class GpuCost(ResultModel):
    """What the paid GPUs of one type cost, or those of all types together."""

    gpu: str
    """The type by its catalogue name; empty: all types."""
    gpus: int
    """GPUs of all nodes that the plan touches; these are paid for."""
    gpu_hours_per_iteration: float
    price_per_iteration: float
    """In the unit of the pools' price_per_gpu_hour, US dollars in the catalogue; 0: no price."""
    price_per_million_tokens: float
    run_gpu_hours: float
    """GPU hours of the whole run: iterations, start-up, checkpoints."""
    run_price: float


class PlanCosts(ResultModel):
    """What a plan will cost if its iterations take as long as it says."""

    iterations: int
    """Iterations of the run."""
    iteration_seconds: float
    run_seconds: float
    tokens_per_iteration: float
    total: GpuCost
    by_gpu: list[GpuCost] | None
    """The dearest type first. Null: nodes or prices of the catalogue have changed since the plan
    was made, so its price cannot be divided."""


def plan_costs(plan: Plan) -> PlanCosts:
    """What a plan will cost, in all as the plan says, and divided among the types of its GPUs."""
    return PlanCosts(
        iterations=plan.spec.workload.iterations,
        iteration_seconds=plan.iteration_seconds,
        run_seconds=plan.run_seconds,
        tokens_per_iteration=plan.tokens_per_iteration,
        total=_cost(plan, "", plan.gpus_used, plan.price_per_iteration, plan.run_price),
        by_gpu=_by_gpu(plan),
    )


def _by_gpu(plan: Plan) -> list[GpuCost] | None:
    pools = _pools(plan)
    if pools is None:
        return None
    paid = paid_gpus(pools, plan.copies)
    gpus: dict[str, int] = {}
    hourly: dict[str, float] = {}
    for pool in pools:
        if paid[pool.name]:
            name = pool.gpu.name
            gpus[name] = gpus.get(name, 0) + paid[pool.name]
            hourly[name] = hourly.get(name, 0.0) + paid[pool.name] * pool.price_per_gpu_hour
    found = [
        _cost(
            plan,
            name,
            gpus[name],
            hourly[name] * plan.iteration_seconds / 3600,
            hourly[name] * plan.run_seconds / 3600,
        )
        for name in gpus
    ]
    whole = sum(each.price_per_iteration for each in found)
    if sum(gpus.values()) != plan.gpus_used or not math.isclose(whole, plan.price_per_iteration):
        return None
    return sorted(found, key=lambda each: (-each.price_per_iteration, each.gpu))


def _pools(plan: Plan) -> Sequence[Pool] | None:
    """The pools of its cluster by today's catalogue; None: it cannot hold them any more."""
    cluster = plan.spec.cluster
    if isinstance(cluster, str):
        return None
    try:
        # Where measured tables lie does not matter for prices, and they may be gone.
        return [
            resolve_pool(
                given.model_copy(update={"profile": None}), field=f"spec.cluster.pools.{index}"
            )
            for index, given in enumerate(cluster.pools)
        ]
    except SpecError:
        return None


def _cost(plan: Plan, gpu: str, gpus: int, per_iteration: float, run: float) -> GpuCost:
    return GpuCost(
        gpu=gpu,
        gpus=gpus,
        gpu_hours_per_iteration=gpus * plan.iteration_seconds / 3600,
        price_per_iteration=per_iteration,
        price_per_million_tokens=per_iteration / plan.tokens_per_iteration * 1e6,
        run_gpu_hours=gpus * plan.run_seconds / 3600,
        run_price=run,
    )
