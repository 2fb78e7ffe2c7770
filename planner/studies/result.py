"""Answers made of several plans: a Pareto front, what-if, and what makes a job possible."""

from typing import Annotated, Literal

from pydantic import Field

from automap.planner.errors import InfeasibleError, Reason
from automap.planner.infeasible.changes import ChangeKind
from automap.planner.plan.types import Plan, ResultModel
from automap.planner.spec import JobSpec

Positive = Annotated[int, Field(ge=1)]


class OpenNodes(ResultModel):
    """Nodes of which the time limit left open whether a plan on them belongs to the front."""

    gpus: dict[str, int]
    """Pool → the most GPUs of it that such a plan uses."""
    lower_bound_seconds: float
    """Proven: no such plan has a faster iteration."""


class Front(ResultModel):
    """The plans that no other beats in both the seconds and the price of an iteration."""

    schema_version: Literal[1] = 1
    spec: JobSpec
    tolerance: float
    """A share: no plan of the searched space beats all of these by more, in seconds or price."""
    plans: list[Plan]
    """Fastest first, each cheaper than the one before. The spec of each is that of the job, with
    all nodes but its own kept free, and the objective throughput."""
    proven: bool
    """True: nothing was left open."""
    undecided: list[OpenNodes]
    node_numbers: int
    """Numbers of nodes (with several pools: combinations of them) that a plan may use."""
    searches: int
    """How many of these numbers had to be searched; bounds decided the others."""
    seconds: float
    """Wall seconds that all plans together took."""


class Variant(ResultModel):
    """The job on another cluster: its plan, or why there is none."""

    pool: str
    gpu: str
    """Type of the pool's GPUs."""
    num_nodes: Positive
    """Nodes of the pool."""
    num_gpus: Positive
    """GPUs of the whole cluster, kept-free ones left out."""
    plan: Plan | None
    scaling_efficiency: float | None = None
    """Tokens per second and paid GPU over those of the smallest variant with the same type of GPU
    that has a plan; 1: twice the GPUs do twice the work."""
    reasons: list[Reason]
    """Why there is no plan."""


class WhatIf(ResultModel):
    """One job on several clusters."""

    schema_version: Literal[1] = 1
    spec: JobSpec
    variants: list[Variant]
    seconds: float
    """Wall seconds that all plans together took."""


class Remedy(ResultModel):
    """A change with which an impossible job becomes possible: this is its plan."""

    kinds: list[ChangeKind]
    """One; two, or all of them, where no single change suffices."""
    change: str
    """In words; it completes "it would fit if you …". The changed spec is the plan's."""
    plan: Plan


class Refusal(ResultModel):
    """Why no placement fits, and the smallest changes with which one does."""

    schema_version: Literal[1] = 1
    reasons: list[Reason]
    remedies: list[Remedy]
    """Sorted: first remedies that leave the job as it is, then those that take other hardware, then
    those that change what is learnt; among equals the cheapest per million tokens first."""
    untried: list[str]
    """Changes with which it would fit that were not planned before the time limit."""


class ExplainedInfeasibleError(InfeasibleError):
    """An infeasible job with plans of the changes that make it possible."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reasons)
        self.refusal = refusal
