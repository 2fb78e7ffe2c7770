"""What the database knows, as metrics: read when Prometheus asks, at most every few seconds."""

import threading
import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from automap.service.queues.queue_figures import QueueFigures, StateFigures, queue_figures
from automap.service.schemas.budgets import BudgetRecord
from automap.service.storage.budgets import all_budgets
from automap.service.storage.database import Database, utc_now

KEPT_SECONDS = 5.0
"""Several scrapers share one look at the database."""
STATES = {
    "plans": ("queued", "running", "succeeded", "failed", "cancelled"),
    "jobs": ("queued", "starting", "running", "succeeded", "failed", "cancelled"),
}


class DatabaseFigures(Collector):
    """Figures of the queues, which are the same on every server of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: QueueFigures | None = None
        self._budgets: list[BudgetRecord] = []
        self._writable = True
        self._read_at = float("-inf")

    def collect(self) -> Iterator[Metric]:
        """What Prometheus is told; without the database only that it does not answer."""
        figures = self._figures()
        yield GaugeMetricFamily(
            "automap_database_up",
            "Whether the database answers",
            value=0 if figures is None else 1,
        )
        if figures is None:
            return
        yield GaugeMetricFamily(
            "automap_database_writable",
            "Whether what this process writes to the database is stored",
            value=1 if self._writable else 0,
        )
        states = {(each.queue, each.status): each for each in figures.states}
        yield _by_status(states, "plans", "Plans by status")
        yield _by_status(states, "jobs", "Jobs by status")
        yield from _queues(states)
        yield _leases(figures)
        yield GaugeMetricFamily(
            "automap_jobs_drifting",
            "Running jobs for which another plan is suggested, since they run otherwise",
            value=figures.drifting,
        )
        yield from _budgets(self._budgets)

    def describe(self) -> Iterator[Metric]:
        """Nothing: else the registry would ask the database when the service starts."""
        return iter(())

    def _figures(self) -> QueueFigures | None:
        with self._lock:
            if time.monotonic() - self._read_at > KEPT_SECONDS:
                try:
                    with self._database.reading() as session:
                        self._known = queue_figures(session)
                        self._budgets = all_budgets(session)
                    self._writable = self._database.why_not_writable() is None
                except SQLAlchemyError:
                    self._known = None
                self._read_at = time.monotonic()
            return self._known


_States = dict[tuple[str, str], StateFigures]


def _by_status(states: _States, queue: str, help_text: str) -> Metric:
    family = GaugeMetricFamily(f"automap_{queue}", help_text, labels=["status"])
    for status in STATES[queue]:
        found = states.get((queue, status))
        family.add_metric([status], found.count if found else 0)
    return family


def _queues(states: _States) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "automap_queue_depth", "Plans and jobs that wait to be taken up", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "automap_queue_oldest_seconds", "Age of the oldest that waits; 0: none", labels=["queue"]
    )
    retried = GaugeMetricFamily(
        "automap_retried", "Not over, and taken up more than once", labels=["queue"]
    )
    for queue in STATES:
        waiting = states.get((queue, "queued"))
        since = waiting.oldest if waiting else None
        age = max(0.0, (utc_now() - since).total_seconds()) if since else 0.0
        depth.add_metric([queue], waiting.count if waiting else 0)
        oldest.add_metric([queue], age)
        known = [each.retried for (name, _), each in states.items() if name == queue]
        retried.add_metric([queue], sum(known))
    yield from (depth, oldest, retried)


def _leases(figures: QueueFigures) -> Metric:
    family = GaugeMetricFamily(
        "automap_leases",
        "Plans and jobs in somebody's hands: held, or expired as whoever had them is silent",
        labels=["queue", "state"],
    )
    for queue in STATES:
        of_queue = [each for each in figures.states if each.queue == queue]
        family.add_metric([queue, "held"], sum(each.held for each in of_queue))
        family.add_metric([queue, "expired"], sum(each.expired for each in of_queue))
    return family


def _budgets(known: Sequence[BudgetRecord]) -> Iterator[Metric]:
    labels = ["of", "unit"]
    spent = GaugeMetricFamily(
        "automap_budget_spent_share", "Share of a budget that is spent this month", labels=labels
    )
    forecast = GaugeMetricFamily(
        "automap_budget_forecast_share",
        "Share of a budget that is expected to be spent by the end of this month",
        labels=labels,
    )
    for budget in known:
        spent.add_metric([budget.of, budget.unit], budget.spent / budget.amount)
        forecast.add_metric([budget.of, budget.unit], budget.forecast / budget.amount)
    yield from (spent, forecast)
