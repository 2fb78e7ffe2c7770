"""Studies of one placement or plan: priced, compared, simulated, explained, planned anew."""

from pydantic import TypeAdapter

from automap.planner import (
    ExplainOptions,
    Explanation,
    Launch,
    Plan,
    Replan,
    ReplanOptions,
    Simulation,
    Strategy,
)
from automap.planner.errors import SpecError
from automap.service.errors.domain import ConflictError, OlderVersionError
from automap.service.planners.deadlines import SLOWEST_MACHINE, planning_deadline_seconds
from automap.service.planners.messages import (
    CompareTask,
    EstimateTask,
    ExplainTask,
    ExportTask,
    ReplanTask,
    SimulateTask,
    StrategiesTask,
)
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.studies import (
    Comparison,
    EstimateRequest,
    SimulateRequest,
    StrategyDescription,
)
from automap.service.use_cases.planner_tasks import BRIEF_SECONDS, ask, resolve_spec
from automap.service.use_cases.service_parts import ServiceParts

_STRATEGIES = TypeAdapter(list[Strategy])
_DESCRIPTIONS = TypeAdapter(list[StrategyDescription])
_STRATEGIES_SECONDS = 5.0
"""What a list may wait for a planner process, the first time."""
_EXPLAIN_SECONDS = 900.0
"""Seconds for dozens of searches, each with a limit of its own."""


def estimate(service: ServiceParts, request: EstimateRequest) -> Plan:
    """The placement priced as a plan.

    Raises:
        PlanningError: it does not fit, or something in the request is wrong.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    spec = resolve_spec(service, request.spec, prefix="spec.")
    return Plan.model_validate(ask(service, EstimateTask(spec=spec, placement=request.placement)))


def compare(service: ServiceParts, record: PlanRecord, names: list[str]) -> Comparison:
    """What named strategies cost beside a plan.

    Raises:
        ConflictError, OlderVersionError: the plan is not made, or not by this version.
        PlanningError: there is no such strategy.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    plan = _made(record, "compare")
    task = CompareTask(spec=plan.spec, plan=plan, strategies=list(dict.fromkeys(names)))
    limit = planning_deadline_seconds(plan.spec, overhead_seconds=BRIEF_SECONDS)
    return Comparison(
        plan_id=record.id,
        iteration_seconds=plan.iteration_seconds,
        strategies=_STRATEGIES.validate_python(ask(service, task, limit_seconds=limit)),
    )


def simulate(service: ServiceParts, record: PlanRecord, request: SimulateRequest) -> Simulation:
    """Iterations of a plan, with lengths drawn anew in each.

    Raises:
        ConflictError, OlderVersionError: the plan is not made, or not by this version.
        PlanningError: the plan is one of another version.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    plan = _made(record, "simulate")
    _refuse_many_sequences(service, plan, request.iterations)
    task = SimulateTask(
        plan=plan, iterations=request.iterations, seed=request.seed, trace=request.trace
    )
    return Simulation.model_validate(ask(service, task))


def _refuse_many_sequences(service: ServiceParts, plan: Plan, iterations: int) -> None:
    """The length of every sequence of every iteration is drawn."""
    workload = plan.spec.workload
    sequences = iterations * workload.prompts_per_iteration * workload.responses_per_prompt
    most = service.settings.max_simulated_sequences
    if sequences > most:
        raise SpecError(
            "iterations",
            f"{iterations} iterations have {sequences} sequences, and this service draws {most}",
            remedy="simulate fewer iterations, or a job with fewer sequences in each",
        )


def explain(service: ServiceParts, record: PlanRecord, options: ExplainOptions) -> Explanation:
    """Why a plan is as it is.

    Raises:
        ConflictError, OlderVersionError: the plan is not made, or not by this version.
        PlanningError: the plan is one of another version.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    task = ExplainTask(plan=_made(record, "explain"), options=options)
    return Explanation.model_validate(ask(service, task, limit_seconds=_EXPLAIN_SECONDS))


def export(service: ServiceParts, record: PlanRecord, target: str) -> Launch:
    """A plan as the launch of another framework.

    Raises:
        ConflictError, OlderVersionError: the plan is not made, or not by this version.
        PlanningError: there is no such framework, or it cannot be told the plan.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    task = ExportTask(plan=_made(record, "export"), target=target)
    return Launch.model_validate(ask(service, task))


def replan(service: ServiceParts, record: PlanRecord, options: ReplanOptions) -> Replan:
    """Whether a plan that runs should be kept.

    Raises:
        ConflictError, OlderVersionError: the plan is not made, or not by this version.
        PlanningError: nothing fits any more, or something in the options is wrong.
        PlannerProcessError, BusyError: no planner process has answered.
    """
    task = ReplanTask(plan=_made(record, "replan"), options=options)
    limit = SLOWEST_MACHINE * options.search_seconds + BRIEF_SECONDS
    return Replan.model_validate(ask(service, task, limit_seconds=limit))


def strategies(service: ServiceParts) -> list[StrategyDescription]:
    """The strategies that plans can be compared with.

    Raises:
        PlannerProcessError, BusyError: no planner process has answered.
    """
    if not service.strategies:
        named = ask(service, StrategiesTask(), wait_seconds=_STRATEGIES_SECONDS)
        service.strategies[:] = _DESCRIPTIONS.validate_python(named)
    return service.strategies


def _made(record: PlanRecord, what: str) -> Plan:
    if record.plan is None:
        raise ConflictError(f"Plan {record.id} is {record.status}: there is nothing to {what}")
    if not isinstance(record.plan, Plan):
        raise OlderVersionError(record.id)
    return record.plan
