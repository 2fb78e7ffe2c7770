"""Budgets, which warn and refuse nothing: what they are of, and how far they are used."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.schemas.base import Page, PageQuery
from automap.service.schemas.budgets import BudgetRecord, NewBudget
from automap.service.storage import costs
from automap.service.storage.costs import Run
from automap.service.storage.database import utc_now
from automap.service.storage.paging import page_of
from automap.service.storage.tables import BudgetRow

RECENT = timedelta(days=7)
"""The rest of a month is taken to go as this time has."""
_UNITS = {"price": "in price", "gpu_hours": "GPU hours"}


def add(session: Session, new: NewBudget) -> BudgetRecord:
    """Store a budget.

    Raises:
        ConflictError: there is one of the same in this unit.
    """
    row = BudgetRow(**new.model_dump())
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise ConflictError(
            f"There is a budget of {new.of} in {new.unit}; delete it first"
        ) from None
    return _records(session, [row])[0]


def list_budgets(session: Session, query: PageQuery) -> Page[BudgetRecord]:
    """One page of budgets, newest first."""
    rows, next_cursor = page_of(session, select(BudgetRow), BudgetRow, query)
    return Page(items=_records(session, rows), next_cursor=next_cursor)


def remove(session: Session, budget_id: UUID) -> None:
    """Forget a budget.

    Raises:
        NotFoundError: there is none.
    """
    statement = delete(BudgetRow).where(BudgetRow.id == budget_id).returning(BudgetRow.id)
    if session.execute(statement).one_or_none() is None:
        raise NotFoundError("budget", budget_id)


def all_budgets(session: Session) -> list[BudgetRecord]:
    """Every budget, the oldest first."""
    rows = session.scalars(select(BudgetRow).order_by(BudgetRow.created_at, BudgetRow.id)).all()
    return _records(session, rows)


def warnings(session: Session, *, owner: str, labels: Mapping[str, str]) -> list[str]:
    """What whoever runs a job with these labels is told of the budgets that it is part of."""
    groups = _groups(owner, labels)
    rows = session.scalars(select(BudgetRow).where(BudgetRow.of.in_(groups))).all()
    return [each.warning for each in _records(session, rows) if each.warning is not None]


def _groups(owner: str, labels: Mapping[str, str]) -> set[str]:
    return {f"owner:{owner}", *(f"label:{key}:{value}" for key, value in labels.items())}


def _records(session: Session, rows: Sequence[BudgetRow]) -> list[BudgetRecord]:
    if not rows:
        return []
    now = utc_now()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    used = list(costs.runs(session, after=min(month, now - RECENT), before=now))
    return [_record(row, used, month, now) for row in rows]


def _record(row: BudgetRow, used: Iterable[Run], month: datetime, now: datetime) -> BudgetRecord:
    spent = recent = 0.0
    for run in used:
        if row.of in _groups(run.owner, run.labels):
            spent += _amount(run, month, row.unit)
            recent += _amount(run, now - RECENT, row.unit)
    next_month = (month + timedelta(days=32)).replace(day=1)
    forecast = spent + recent * ((next_month - now) / RECENT)
    return BudgetRecord(
        **{name: getattr(row, name) for name in ("id", "created_at", "of", "unit", "amount")},
        spent=spent,
        forecast=forecast,
        warning=_warning(row, spent, forecast, f"{month:%Y-%m}"),
    )


def _amount(run: Run, since: datetime, unit: str) -> float:
    """What the run has used since then."""
    seconds = (run.finished_at - max(run.started_at, since)).total_seconds()
    if seconds <= 0:
        return 0.0
    return run.gpus * seconds / 3600 if unit == "gpu_hours" else run.price_of(seconds) or 0.0


def _warning(row: BudgetRow, spent: float, forecast: float, month: str) -> str | None:
    of = f"{_shown(row.amount)} {_UNITS[row.unit]} of {row.of} for {month}"
    if spent > row.amount:
        return f"The budget of {of} is used up: {_shown(spent)} so far"
    if forecast > row.amount:
        expected = f"{_shown(spent)} so far, {_shown(forecast)} expected"
        return f"The budget of {of} will not last: {expected}"
    return None


def _shown(amount: float) -> str:
    """Two decimals; three digits where these would be none."""
    return f"{amount:,.2f}" if amount >= 0.01 or amount == 0 else f"{amount:.3g}"
