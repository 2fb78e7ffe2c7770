"""Predicted against actual: of the runs of one plan over time, and of the runs of all plans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.orm import Session, contains_eager, defer

from automap.planner.runs import planned_seconds
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.runs import call_seconds, iteration_history, suggestion_notes
from automap.service.runs.iteration_history import Stretch
from automap.service.schemas.history import (
    CallAccuracy,
    HistoryPage,
    HistoryQuery,
    HistoryStretch,
    JobHistory,
    KindAccuracy,
    PlanHistory,
)
from automap.service.storage.paging import page_of
from automap.service.storage.stored_documents import stored_plan
from automap.service.storage.tables import JobRow, PlanRow

JOBS_SHOWN = 20
"""How many runs of a plan are shown: the latest."""
_KINDS = ("iteration", "generate", "forward", "train", "sync")


@dataclass(frozen=True, slots=True)
class Runs:
    """What a list of plans shows of a plan's runs."""

    count: int
    latest: float | None
    """Seconds of an iteration of the latest run."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a plan says, by call and weight sync."""

    iteration: float
    calls: dict[str, float]
    kinds: dict[str, str]
    """Kind of call by name, without calls of functions: their seconds come from the spec."""

    @classmethod
    def of(cls, row: PlanRow) -> "Predicted":
        """A plan that was made; of one of an earlier version the iteration alone."""
        plan = stored_plan(row.plan)
        if plan is None:
            seconds = (row.plan or {}).get("iteration_seconds")
            return cls(call_seconds.number(seconds) or 0.0, {}, {})
        kinds: dict[str, str] = {
            call.id: call.kind for call in plan.calls if call.copy_id is not None
        }
        kinds |= {f"{sync.role}.sync": "sync" for sync in plan.transitions}
        return cls(plan.iteration_seconds, planned_seconds(plan), kinds)


def runs_of(session: Session, plans: Sequence[UUID]) -> dict[UUID, Runs]:
    """How often each plan was run, and what the latest run measured; without plans never run."""
    return {
        row.plan_id: Runs(
            row.times,
            call_seconds.iteration_seconds({"iteration": row.iteration, "report": row.report}),
        )
        for row in session.execute(_LATEST, {"plans": list(plans)})
    }


_numbered = (
    select(
        JobRow.plan_id,
        JobRow.measured["iteration"].label("iteration"),
        JobRow.measured["report"].label("report"),
        func.row_number()
        .over(partition_by=JobRow.plan_id, order_by=(JobRow.created_at.desc(), JobRow.id.desc()))
        .label("place"),
        func.count().over(partition_by=JobRow.plan_id).label("times"),
    )
    .where(JobRow.plan_id.in_(bindparam("plans", expanding=True)), JobRow.iteration > 0)
    .subquery()
)
# Made once: that takes longer than what it asks.
_LATEST = select(_numbered).where(_numbered.c.place == 1)


def history_of_plan(session: Session, plan_id: UUID) -> PlanHistory:
    """The latest runs of a plan, oldest first.

    Raises:
        NotFoundError: there is no such plan.
        ConflictError: it is not made, so it predicts nothing.
    """
    plan = session.get(PlanRow, plan_id)
    if plan is None:
        raise NotFoundError("plan", plan_id)
    if plan.plan is None:
        raise ConflictError(f"Plan {plan_id} is {plan.status}: it predicts nothing (yet)")
    rows = session.scalars(
        _measured_jobs()
        .where(JobRow.plan_id == plan_id)
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(JOBS_SHOWN)
    ).all()
    predicted = Predicted.of(plan)
    found = [_job_history(row, predicted, over_time=True) for row in reversed(rows)]
    return PlanHistory(
        plan_id=plan.id,
        spec_name=plan.spec_name,
        iteration_seconds=predicted.iteration,
        jobs=[each for each in found if each is not None],
    )


def history(session: Session, query: HistoryQuery) -> HistoryPage:
    """One page of the runs of all plans, newest first, and how wrong their predictions were."""
    statement = _measured_jobs()
    if query.algorithm is not None:
        statement = statement.where(PlanRow.algorithm == query.algorithm)
    if query.cluster is not None:
        statement = statement.where(PlanRow.cluster_name == query.cluster)
    if query.created_after is not None:
        statement = statement.where(JobRow.created_at > query.created_after)
    if query.created_before is not None:
        statement = statement.where(JobRow.created_at < query.created_before)
    rows, next_cursor = page_of(session, statement, JobRow, query)
    plans = {row.plan.id: row.plan for row in rows if row.plan is not None}
    predicted = {plan_id: Predicted.of(plan) for plan_id, plan in plans.items()}
    found = [
        _job_history(row, predicted[row.plan.id], over_time=False)
        for row in rows
        if row.plan is not None
    ]
    items = [each for each in found if each is not None]
    return HistoryPage(
        items=items, next_cursor=next_cursor, accuracy=list(_accuracy(items, predicted))
    )


def _measured_jobs() -> Select[JobRow]:
    documents = (JobRow.settings, JobRow.report, JobRow.problem)
    shown = (PlanRow.spec_name, PlanRow.algorithm, PlanRow.plan)
    return (
        select(JobRow)
        .join(JobRow.plan)
        .where(JobRow.iteration > 0, PlanRow.plan.is_not(None))
        .options(
            contains_eager(JobRow.plan).load_only(*shown, raiseload=True),
            *(defer(column, raiseload=True) for column in documents),
        )
    )


def _job_history(row: JobRow, predicted: Predicted, *, over_time: bool) -> JobHistory | None:
    """A run beside its plan; None: its seconds cannot be read, or it runs no plan."""
    seconds = call_seconds.iteration_seconds(row.measured)
    if seconds is None or row.plan is None:
        return None
    known = iteration_history.read(row.measured.get("iterations"))
    usual = {call.call: call.measured_seconds for call in call_seconds.calls_of({}, row.measured)}
    return JobHistory(
        job_id=row.id,
        plan_id=row.plan.id,
        spec_name=row.plan.spec_name,
        algorithm=row.plan.algorithm,
        status=row.status,
        created_at=row.created_at,
        iterations=row.iteration,
        iteration=_compared(predicted.iteration, seconds),
        calls=_calls(predicted, usual),
        stretches=[_stretch(each, predicted) for each in known.stretches] if over_time else [],
        suggested=len(suggestion_notes.raised(row.measured)),
    )


def _stretch(each: Stretch, predicted: Predicted) -> HistoryStretch:
    return HistoryStretch(
        first_iteration=each.first,
        last_iteration=each.last,
        ended_at=each.ended_at,
        iteration=_compared(predicted.iteration, each.seconds),
        calls=_calls(predicted, each.calls),
        response_tokens=each.response_tokens,
    )


def _calls(predicted: Predicted, seconds: Mapping[str, float | None]) -> dict[str, CallAccuracy]:
    """Predicted against measured seconds of the calls that the plan has, in its order."""
    return {
        name: _compared(planned, actual)
        for name, planned in predicted.calls.items()
        if (actual := seconds.get(name)) is not None
    }


def _compared(predicted: float, seconds: float) -> CallAccuracy:
    error = predicted / seconds - 1 if seconds else None
    return CallAccuracy(predicted_seconds=predicted, measured_seconds=seconds, relative_error=error)


def _accuracy(
    items: Sequence[JobHistory], predicted: Mapping[UUID, Predicted]
) -> Iterable[KindAccuracy]:
    """Per kind of what the cost model predicts."""
    errors: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for item in items:
        kinds = predicted[item.plan_id].kinds
        compared = [("iteration", item.iteration)]
        compared += [(kinds[name], each) for name, each in item.calls.items() if name in kinds]
        for kind, each in compared:
            if each.relative_error is not None:
                errors[kind].append(each.relative_error)
    for kind, found in errors.items():
        if found:
            yield KindAccuracy(
                kind=kind,
                count=len(found),
                median_error=median(map(abs, found)),
                mean_error=fmean(map(abs, found)),
                bias=median(found),
            )
