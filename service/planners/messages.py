"""What the service and its planner processes send each other: how to work, errands, answers."""

import struct
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from automap.planner import ExplainOptions, Placement, Plan, ReplanOptions
from automap.planner.errors import Reason
from automap.planner.runs import RunWindow
from automap.planner.spec import JobSpec
from automap.planner.studies import Refusal
from automap.service.telemetry.logs import LogSettings


class Message(BaseModel):
    """Frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanTask(Message):
    """Search a plan; answered with a Plan."""

    kind: Literal["plan"] = "plan"
    spec: JobSpec
    profiles: dict[str, str] = {}
    """Versions of stored profiles, by GPU type that a change to an impossible job may bring."""


class EstimateTask(Message):
    """Price a placement; answered with a Plan."""

    kind: Literal["estimate"] = "estimate"
    spec: JobSpec
    placement: Placement


class CompareTask(Message):
    """Price strategies beside a plan; answered with a list of Strategy."""

    kind: Literal["compare"] = "compare"
    spec: JobSpec
    plan: Plan
    strategies: list[str]


class SimulateTask(Message):
    """Simulate iterations of a plan; answered with a Simulation."""

    kind: Literal["simulate"] = "simulate"
    plan: Plan
    iterations: int
    seed: int
    trace: bool = False


class ExportTask(Message):
    """Say a plan in the words of another framework; answered with a Launch."""

    kind: Literal["export"] = "export"
    plan: Plan
    target: str


class FrontTask(Message):
    """Find the Pareto front; answered with a Front."""

    kind: Literal["front"] = "front"
    spec: JobSpec
    tolerance: float


class WhatIfTask(Message):
    """Plan on several clusters; answered with a WhatIf."""

    kind: Literal["what_if"] = "what_if"
    spec: JobSpec
    nodes: list[int]
    gpus: list[str]
    pool: str | None
    profiles: dict[str, str]
    """Versions of stored profiles by the GPU type that they were measured on."""


class ExplainTask(Message):
    """Explain a plan; answered with an Explanation."""

    kind: Literal["explain"] = "explain"
    plan: Plan
    options: ExplainOptions


class ReplanTask(Message):
    """Keep or move a running plan; answered with a Replan."""

    kind: Literal["replan"] = "replan"
    plan: Plan
    options: ReplanOptions


class SuggestTask(Message):
    """Say what to do about a run that has drifted; answered with a Suggestion."""

    kind: Literal["suggest"] = "suggest"
    plan: Plan
    run_window: RunWindow


class StrategiesTask(Message):
    """Name the strategies; answered with a list of StrategyDescription."""

    kind: Literal["strategies"] = "strategies"


PlannerTask = (
    PlanTask
    | EstimateTask
    | CompareTask
    | FrontTask
    | WhatIfTask
    | SimulateTask
    | ExportTask
    | ExplainTask
    | ReplanTask
    | SuggestTask
    | StrategiesTask
)


class Setup(Message):
    """What a planner process is forked with."""

    profiles_folder: Path
    """Where the profiles are that specs name by version."""
    memory_bytes: int
    """What it may reserve."""
    logs: LogSettings = LogSettings()
    environment: dict[str, str] = {}
    """Its variables. Sent, because others can read what a process inherits."""


LENGTH = struct.Struct("!I")
"""How many bytes a `Setup` has, before it is sent."""


class Errand(Message):
    """A line to a planner process: a task, and what it belongs to."""

    task: Annotated[PlannerTask, Field(discriminator="kind")]
    origin: dict[str, str] = {}
    """Ids of request, plan and job, and the open span."""


def spec_of(request: PlannerTask) -> JobSpec | None:
    """The job that a request is about, its own or its plan's."""
    about = getattr(request, "plan", request)
    spec: JobSpec | None = getattr(request, "spec", None) or getattr(about, "spec", None)
    return spec


class Done(Message):
    """The result as JSON."""

    outcome: Literal["done"] = "done"
    result: JsonValue


class SpecFailure(Message):
    """A SpecError."""

    outcome: Literal["spec_error"] = "spec_error"
    field: str
    message: str
    remedy: str


class InfeasibleFailure(Message):
    """An InfeasibleError."""

    outcome: Literal["infeasible"] = "infeasible"
    reasons: list[Reason]
    refusal: Refusal | None = None


class NotExportableFailure(Message):
    """A NotExportableError."""

    outcome: Literal["not_exportable"] = "not_exportable"
    target: str
    reasons: list[Reason]


class NoSolutionFailure(Message):
    """A NoSolutionInTimeError."""

    outcome: Literal["no_solution_in_time"] = "no_solution_in_time"
    lower_bound_seconds: float


class Crash(Message):
    """Any other exception; its traceback is in the log."""

    outcome: Literal["crash"] = "crash"
    exception: str


Answer = Done | SpecFailure | InfeasibleFailure | NotExportableFailure | NoSolutionFailure | Crash
ANSWER: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="outcome")])
