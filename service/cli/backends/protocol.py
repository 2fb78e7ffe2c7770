"""What plans, prices and explains: one interface, whether it is this process or a service."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel

from automap.planner import Placement, Plan, Strategy
from automap.planner.spec import JobSpec

if TYPE_CHECKING:
    from automap.planner import (
        ExplainOptions,
        Explanation,
        Front,
        Launch,
        Replan,
        ReplanOptions,
        Simulation,
        WhatIf,
    )
    from automap.planner.simulation import Occurrence

Tell = Callable[[str], None]
"""Takes how far the work is."""


@dataclass(frozen=True, slots=True)
class KnownPlan:
    """A plan and its document; of one that a service has stored also its id and address."""

    plan: Plan
    document: str
    id: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Variations:
    """What a what-if varies: numbers of nodes, GPU types, and in which pool."""

    nodes: Sequence[int]
    gpus: Sequence[str]
    pool: str | None


class Backend(Protocol):
    """This process or a running service.

    Every method may raise BadInputError or SpecError for what the user gave; those that plan
    raise InfeasibleError and NoSolutionInTimeError; a service raises ServerError as well.
    """

    gives_timelines: bool
    """False where a simulation has no timeline that could be drawn."""

    def read_spec(self, source: str, *, others: Collection[str] = ()) -> JobSpec:
        """The job spec in a file; `others` are GPU types that the command itself will try."""
        ...

    def read_plan(self, source: str) -> KnownPlan | JobSpec:
        """The plan that a file or an id names, or the job spec in the file, not planned yet."""
        ...

    def plan(self, spec: JobSpec, tell: Tell) -> KnownPlan:
        """The best plan of a job."""
        ...

    def estimate(self, spec: JobSpec, placement: Placement) -> Plan:
        """The price of a placement."""
        ...

    def compare(self, spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
        """The best plan of a job, and what strategies cost beside it."""
        ...

    def pareto(self, spec: JobSpec, *, tolerance: float, tell: Tell) -> "tuple[Front, BaseModel]":
        """The Pareto front of a job, and the document that is written of it."""
        ...

    def what_if(self, spec: JobSpec, varied: Variations, tell: Tell) -> "tuple[WhatIf, BaseModel]":
        """The plans of a job on other clusters, and the document that is written of them."""
        ...

    def explain(self, known: KnownPlan, options: "ExplainOptions") -> "Explanation":
        """Why this plan and no other."""
        ...

    def simulate(
        self, known: KnownPlan, *, iterations: int, seed: int, trace: bool
    ) -> "tuple[Simulation, list[Occurrence]]":
        """A plan's iterations as events, with their Chrome trace if asked for; their timeline."""
        ...

    def export(self, known: KnownPlan, target: str) -> "Launch":
        """A plan as the launch of another framework; may raise NotExportableError."""
        ...

    def replan(self, known: KnownPlan, options: "ReplanOptions") -> "Replan":
        """Whether to keep a running plan."""
        ...
