"""GPU time that runs have used: from when a run got its devices to its end, or to now.

What a run has used follows from its job and its plan as long as there are both. When they are
deleted it is noted beside them (`keep`), so that what was spent stays spent.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from automap.service.schemas.costs import Cost, CostQuery, Costs
from automap.service.storage.database import utc_now
from automap.service.storage.tables import JobRow, PastRunRow, PlanModelRow, PlanRow

ACTOR = "actor"


@dataclass(frozen=True, slots=True)
class Run:
    """A run that used GPUs, or the part of it in a stretch of time."""

    job_id: UUID
    owner: str
    labels: dict[str, str]
    plan_id: UUID | None
    """None of a run that an older version noted when its job was deleted."""
    plan_name: str
    model: str | None
    """The actor's, by the catalogue's name."""
    started_at: datetime
    finished_at: datetime
    """Or up to when it was counted."""
    gpus: int
    price_per_second: float | None
    """What all its GPUs cost in a second; None where they have no price."""

    @property
    def plan(self) -> str:
        """Its plan in words that no other plan has, as names repeat."""
        return self.plan_name if self.plan_id is None else f"{self.plan_name} ({self.plan_id})"

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.finished_at - self.started_at).total_seconds()

    def price_of(self, seconds: float) -> float | None:
        """What so many of its seconds cost."""
        return None if self.price_per_second is None else self.price_per_second * seconds


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


def runs(
    session: Session, *, after: datetime | None = None, before: datetime | None = None
) -> Iterator[Run]:
    """The runs that used GPUs in this time, or the part of them that is in it, up to now."""
    now = utc_now()
    for statement in (_LIVE, _PAST):
        columns = statement.selected_columns
        if after is not None:
            over = columns.finished_at
            statement = statement.where(or_(over.is_(None), over > after))
        if before is not None:
            statement = statement.where(columns.started_at < before)
        for row in session.execute(statement.execution_options(yield_per=1000)):
            begin = max(row.started_at, after or row.started_at)
            end = min(row.finished_at or now, before or now)
            if begin < end:
                yield Run(**{**row._mapping, "started_at": begin, "finished_at": end})


def keep(session: Session, jobs: Sequence[UUID]) -> None:
    """Note what the runs of these jobs have used, which are about to be deleted."""
    rows = session.execute(_LIVE.where(JobRow.id.in_(jobs), JobRow.finished_at.is_not(None)))
    session.add_all([PastRunRow(**row._mapping) for row in rows])


def _uses(session: Session, query: CostQuery) -> Iterator[Use]:
    for run in runs(session, after=query.after, before=query.before):
        for group, seconds in _parts(query.by, run):
            yield Use(run.job_id, group, run.gpus * seconds, run.price_of(seconds))


def _parts(by: str, run: Run) -> Iterator[tuple[str, float]]:
    """The groups that a run belongs to, each with its seconds."""
    if by == "day":
        yield from _days(run.started_at.astimezone(UTC), run.finished_at.astimezone(UTC))
    elif by.startswith("label:"):
        yield run.labels.get(by.removeprefix("label:"), ""), run.seconds
    else:
        names = {"owner": run.owner, "model": run.model, "plan": run.plan}
        yield names[by] or "", run.seconds


def _days(begin: datetime, end: datetime) -> Iterator[tuple[str, float]]:
    while begin < end:
        midnight = datetime(begin.year, begin.month, begin.day, tzinfo=UTC) + timedelta(days=1)
        yield f"{begin:%Y-%m-%d}", (min(end, midnight) - begin).total_seconds()
        begin = midnight


_LIVE = (
    select(
        JobRow.id.label("job_id"),
        JobRow.owner,
        JobRow.labels,
        JobRow.plan_id,
        PlanRow.name.label("plan_name"),
        PlanModelRow.architecture.label("model"),
        JobRow.started_at,
        JobRow.finished_at,
        PlanRow.gpus_used.label("gpus"),
        (
            func.nullif(PlanRow.price_per_iteration, 0.0)
            / func.nullif(PlanRow.iteration_seconds, 0.0)
        ).label("price_per_second"),
    )
    .join(PlanRow, JobRow.plan_id == PlanRow.id)
    .outerjoin(PlanModelRow, and_(PlanModelRow.plan_id == PlanRow.id, PlanModelRow.role == ACTOR))
    .where(JobRow.started_at.is_not(None), PlanRow.gpus_used.is_not(None))
)
_PAST = select(*PastRunRow.__table__.columns)
