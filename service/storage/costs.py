"""GPU time that runs have used: from when a run began to its end, or to now, whatever attempt."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from automap.service.schemas.costs import Cost, CostQuery, Costs
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobRow, PlanModelRow, PlanRow

ACTOR = "actor"


@dataclass(frozen=True, slots=True)
class Use:
    """A run, or the part of it in a stretch of time."""

    job_id: UUID
    group: str
    gpu_seconds: float
    price: float | None
    """None where its GPUs have no price."""


def costs(session: Session, query: CostQuery) -> Costs:
    """GPU hours and price, group by group."""
    uses = list(_uses(session, query))
    groups: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        groups[use.group].append(use)
    items = [_cost(group, each) for group, each in groups.items()]
    if query.by == "day":
        items.sort(key=lambda each: each.group)
    else:
        items.sort(key=lambda each: (-each.price, -each.gpu_hours, each.group))
    return Costs(by=query.by, total=_cost("", uses), items=items)


def gpu_seconds_by_owner(session: Session, *, since: datetime) -> dict[str, float]:
    """GPU seconds that each owner's runs have used since then."""
    used: dict[str, float] = defaultdict(float)
    for use in _uses(session, CostQuery(by="owner", after=since)):
        used[use.group] += use.gpu_seconds
    return used


def _cost(group: str, uses: Iterable[Use]) -> Cost:
    uses = list(uses)
    unpriced = [use.gpu_seconds for use in uses if use.price is None]
    return Cost(
        group=group,
        jobs=len({use.job_id for use in uses}),
        gpu_hours=sum(use.gpu_seconds for use in uses) / 3600,
        price=sum(use.price or 0.0 for use in uses),
        unpriced_gpu_hours=sum(unpriced) / 3600,
    )


def _uses(session: Session, query: CostQuery) -> Iterator[Use]:
    now = utc_now()
    actor = and_(PlanModelRow.plan_id == PlanRow.id, PlanModelRow.role == ACTOR)
    statement = (
        select(
            JobRow.id,
            JobRow.started_at,
            JobRow.finished_at,
            JobRow.owner,
            JobRow.labels,
            PlanRow.name,
            PlanRow.gpus_used,
            PlanRow.iteration_seconds,
            PlanRow.price_per_iteration,
            PlanModelRow.architecture,
        )
        .join(PlanRow, JobRow.plan_id == PlanRow.id)
        .outerjoin(PlanModelRow, actor)
        .where(JobRow.started_at.is_not(None), PlanRow.gpus_used.is_not(None))
        .execution_options(yield_per=1000)
    )
    if query.after is not None:
        over = JobRow.finished_at
        statement = statement.where(or_(over.is_(None), over > query.after))
    if query.before is not None:
        statement = statement.where(JobRow.started_at < query.before)
    for row in session.execute(statement):
        begin = max(row.started_at, query.after or row.started_at)
        end = min(row.finished_at or now, query.before or now)
        if row.iteration_seconds and row.price_per_iteration:
            per_second = row.price_per_iteration / row.iteration_seconds
        else:
            per_second = None
        for group, seconds in _parts(query.by, row, begin, end):
            price = None if per_second is None else per_second * seconds
            yield Use(row.id, group, row.gpus_used * seconds, price)


def _parts(by: str, row: object, begin: datetime, end: datetime) -> Iterator[tuple[str, float]]:
    """The groups that a run belongs to, each with its seconds."""
    if begin >= end:
        return
    if by == "day":
        yield from _days(begin.astimezone(UTC), end.astimezone(UTC))
        return
    seconds = (end - begin).total_seconds()
    if by.startswith("label:"):
        labels: dict[str, str] = getattr(row, "labels", {})
        yield labels.get(by.removeprefix("label:"), ""), seconds
        return
    columns = {"owner": "owner", "model": "architecture", "plan": "name"}
    yield getattr(row, columns[by]) or "", seconds


def _days(begin: datetime, end: datetime) -> Iterator[tuple[str, float]]:
    while begin < end:
        midnight = datetime(begin.year, begin.month, begin.day, tzinfo=UTC) + timedelta(days=1)
        yield f"{begin:%Y-%m-%d}", (min(end, midnight) - begin).total_seconds()
        begin = midnight
