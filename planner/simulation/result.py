"""Result types of a simulation: the JSON that the command line and HTTP share."""

from typing import Annotated, Any, Literal

from pydantic import Field

from automap.planner.plan.types import ResultModel

MAX_ITERATIONS = 1000

Iterations = Annotated[int, Field(ge=1, le=MAX_ITERATIONS)]


class Spread(ResultModel):
    """How one duration varies over the iterations, in seconds."""

    mean: float
    p50: float
    p95: float
    lowest: float
    highest: float


class SimulatedCall(ResultModel):
    """Seconds of a call or a weight sync over the iterations."""

    name: str
    planned_seconds: float
    """Seconds in the plan."""
    seconds: Spread
    first_chunk_seconds: Spread | None = None
    """Seconds until the first chunk is ready, for a generation from which calls stream."""
    bulk_seconds: Spread | None = None
    """Seconds until the tail begins, for a generation with one."""


class GpuUse(ResultModel):
    """GPUs on which the same things happen, per iteration."""

    pool: str
    first_gpu: int
    num_gpus: int
    busy_seconds: float
    """Seconds per iteration in which each of these GPUs is busy."""
    idle_seconds: float
    idle_share: float


class PoolUse(ResultModel):
    """The GPUs of a pool that hold models, per iteration."""

    pool: str
    num_gpus: int
    idle_gpu_seconds: float
    idle_share: float


class Simulation(ResultModel):
    """Several iterations of a plan, with the lengths of prompts and responses drawn anew."""

    schema_version: Literal[1] = 1
    name: str
    iterations: Iterations
    seed: int
    planned_seconds: float
    """The plan's iteration_seconds, which the check recomputes."""
    iteration_seconds: Spread
    each_iteration_seconds: list[float]
    calls: list[SimulatedCall]
    gpus: list[GpuUse]
    pools: list[PoolUse]
    trace: dict[str, Any] | None = None
    """The timeline as a Chrome trace, where it was asked for."""
