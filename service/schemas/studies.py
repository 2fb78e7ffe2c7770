"""What the API sends and takes of studies: estimates, comparisons, simulations, several plans."""

from typing import Annotated
from uuid import UUID

from pydantic import (
    Field,
    WrapValidator,
)

from automap.planner import Placement, Plan, Strategy
from automap.planner.errors import Reason
from automap.planner.simulation import Iterations
from automap.planner.spec import MAX_NODES, JobSpec, Name
from automap.planner.studies import OpenNodes
from automap.service.schemas.base import ApiModel
from automap.service.schemas.placements import placement_of
from automap.service.schemas.plans import PlanRecord


class EstimateRequest(ApiModel):
    """A job and a placement of the caller's own."""

    spec: JobSpec
    placement: Annotated[
        Placement, WrapValidator(placement_of, json_schema_input_type=Placement | Plan | PlanRecord)
    ] = Field(description="A placement; a whole plan and the record of a plan stand for theirs")


class CompareRequest(ApiModel):
    """Strategies to put beside a plan."""

    strategies: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]],
        Field(min_length=1, max_length=32),
    ]


class SimulateRequest(ApiModel):
    """How to simulate a plan."""

    iterations: Iterations = 100
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the lengths that are drawn."""
    trace: bool = False
    """Also answer with the timeline, as a Chrome trace for chrome://tracing and Perfetto."""


class Comparison(ApiModel):
    """What each strategy would cost beside the plan."""

    plan_id: UUID
    iteration_seconds: float
    strategies: list[Strategy]


class FrontRequest(ApiModel):
    """A job whose Pareto front of time against price is wanted."""

    spec: JobSpec
    tolerance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="A share: leave out what others beat up to so much"
    )


class FrontRecord(ApiModel):
    """The plans that no other beats in both seconds and price, each stored."""

    tolerance: float
    plans: list[PlanRecord] = Field(description="Fastest first, each cheaper than the one before")
    proven: bool = Field(description="True: nothing was left open")
    undecided: list[OpenNodes]
    node_numbers: int = Field(description="Numbers of nodes, over all pools, that a plan may use")
    searches: int = Field(description="Of these those that had to be searched")
    seconds: float


class WhatIfRequest(ApiModel):
    """A job and the clusters to plan it on: other nodes, other GPUs, of one pool."""

    spec: JobSpec
    nodes: Annotated[list[Annotated[int, Field(ge=1, le=MAX_NODES)]], Field(max_length=64)] = Field(
        default=[], description="Numbers of nodes; none: those of the spec"
    )
    gpus: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=64)]], Field(max_length=64)
    ] = Field(default=[], description="GPU types; none: that of the spec")
    pool: Name | None = Field(default=None, description="Needed where the cluster has several")


class VariantRecord(ApiModel):
    """The job on one cluster: its stored plan, or why there is none."""

    pool: str
    gpu: str
    num_nodes: int
    num_gpus: int
    scaling_efficiency: float | None = Field(
        default=None,
        description="Tokens per second and paid GPU over those of the smallest cluster with the "
        "same type of GPU; null: no plan (yet)",
    )
    reasons: list[Reason] = Field(default=[], description="Why there is no plan")
    plan: PlanRecord | None = None


class WhatIfRecord(ApiModel):
    """One job on several clusters."""

    variants: list[VariantRecord]


class StrategyDescription(ApiModel):
    """A named way to place a job."""

    name: str
    description: str
    reference: str
