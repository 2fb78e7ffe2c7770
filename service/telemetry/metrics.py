"""What one process counts of itself, for Prometheus: a registry of its own, no global state.

What the database knows, which all processes share, is read from there when it is asked for
(`service/api/scrape.py`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

Proof = Literal["optimal", "gap", "given", "infeasible", "cut"]
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PLANNING_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_GAPS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_LARGEST = (8, 64, 512)


def gpus_class(num_gpus: int) -> str:
    """The class of a cluster's size that figures are told apart by."""
    lower = 1
    for largest in _LARGEST:
        if num_gpus <= largest:
            return f"{lower}-{largest}"
        lower = largest + 1
    return f"{lower}+"


class Metrics:
    """All counters of one process."""

    def __init__(self) -> None:
        # When each counter began: as many series again, which nobody reads.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._requests(registry)
        self._planning(registry)
        self.attempts = Counter(
            "automap_attempts",
            "Queued work that this process took up, first attempts and later ones",
            ["queue"],
            registry=registry,
        )
        self.leases_lost = Counter(
            "automap_leases_lost",
            "Work that this process took over from one whose lease ran out",
            ["queue"],
            registry=registry,
        )

    def _requests(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "automap_http_requests",
            "Requests that were answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "automap_http_request_seconds",
            "Seconds from the head of a request to the end of its answer",
            ["method", "route"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self.requests_in_flight = Gauge(
            "automap_http_requests_in_flight",
            "Requests that are being answered",
            registry=registry,
        )

    def _planning(self, registry: CollectorRegistry) -> None:
        self.planning_seconds = Histogram(
            "automap_planning_seconds",
            "Seconds that a planner process took for an answer",
            ["task", "gpus", "objective"],
            buckets=_PLANNING_SECONDS,
            registry=registry,
        )
        self.plans_made = Counter(
            "automap_plans_made",
            "Plans asked for by what was proved: optimal, a gap, infeasible, cut by time, or given",
            ["proof"],
            registry=registry,
        )
        self.plan_gap = Histogram(
            "automap_plan_relative_gap",
            "Proven relative gap of plans that are not proven optimal",
            buckets=_GAPS,
            registry=registry,
        )
        self.planners = Gauge(
            "automap_planner_processes",
            "Planner processes that this process keeps",
            ["serves"],
            registry=registry,
        )
        self.planners_busy = Gauge(
            "automap_planner_processes_busy",
            "Planner processes that are at work",
            ["serves"],
            registry=registry,
        )
        self.planners_waited_for = Gauge(
            "automap_planner_requests_waiting",
            "Requests that wait for an idle planner process",
            registry=registry,
        )
        self.planner_starts = Counter(
            "automap_planner_starts",
            "Planner processes that were started, again after each end",
            ["serves"],
            registry=registry,
        )
        self.planner_ends = Counter(
            "automap_planner_ends",
            "Planner processes without an answer: memory, time, killed, cancelled, failed",
            ["serves", "why"],
            registry=registry,
        )

    @contextmanager
    def busy_planner(self, serves: str) -> Iterator[None]:
        """Count a planner process as busy."""
        busy = self.planners_busy.labels(serves)
        busy.inc()
        try:
            yield
        finally:
            busy.dec()

    @contextmanager
    def timed_planning(self, *, task: str, num_gpus: int, objective: str) -> Iterator[None]:
        """Note how long a planner process took, also for an answer that is a refusal."""
        began = time.monotonic()
        yield
        labels = (task, gpus_class(num_gpus) if num_gpus else "", objective)
        self.planning_seconds.labels(*labels).observe(time.monotonic() - began)

    def count_proof(self, proof: Proof, relative_gap: float = 0.0) -> None:
        """Note what a search has proved."""
        self.plans_made.labels(proof).inc()
        if proof == "gap":
            self.plan_gap.observe(relative_gap)
