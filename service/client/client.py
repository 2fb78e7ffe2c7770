"""A service in Python: its plans, jobs and studies as typed values."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import UUID, uuid4

from pydantic import BaseModel, TypeAdapter

from automap.executor.settings import RunSettings
from automap.planner import (
    ExplainOptions,
    Explanation,
    Launch,
    Placement,
    Plan,
    Replan,
    ReplanOptions,
    Simulation,
)
from automap.planner.plan import PlanCosts
from automap.planner.spec import JobSpec
from automap.service.client.errors import NoAnswerError
from automap.service.client.records import JOB, Id, Item, Records, with_query
from automap.service.client.transport import ANSWER_SECONDS, SEARCHES_SECONDS, Event
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.schemas.base import Page
from automap.service.schemas.history import HistoryPage, PlanHistory
from automap.service.schemas.jobs import JobRecord
from automap.service.schemas.measurements import Measure, ProfileJobRecord
from automap.service.schemas.plans import PlanRecord
from automap.service.schemas.profiles import ProfileRecord, ProfileSummary
from automap.service.schemas.studies import Comparison, FrontRecord, WhatIfRecord

Spec = JobSpec | Mapping[str, Any]
"""A job spec, or a document of one as in a file."""
_WAIT_SECONDS = 1.0


class Client(Records):
    """A running service.

    What makes a plan or a job is sent with an idempotency key, so that it is tried again when a
    connection is lost and still happens once. All methods raise ProblemError when the service
    refuses or fails, UnreachableError and NoAnswerError when it does not answer, and
    OtherVersionError when it answers as no version does that this one knows.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def plan(self, spec: Spec, *, key: str | None = None) -> PlanRecord:
        """The best plan of a job, once it is made and stored."""
        return self.parsed(PlanRecord, json.dumps(self.plan_document(spec, key=key)).encode())

    def plan_document(self, spec: Spec, *, key: str | None = None) -> dict[str, Any]:
        """The record of the best plan, as `plan` gives it, with all that the service has sent."""
        seconds = SEARCHES_SECONDS
        if isinstance(spec, JobSpec):
            seconds = planning_deadline_seconds(spec, overhead_seconds=ANSWER_SECONDS)
        answer = self.request(
            "POST", "plans", data=document(spec), headers=_once(key), seconds=seconds
        )
        return self.parsed(TypeAdapter(dict[str, Any]), answer.content)

    def queue_plan(self, spec: Spec, *, key: str | None = None) -> PlanRecord:
        """A plan that will be made; `wait_for_plan` waits for it."""
        headers = {**_once(key), "Prefer": "respond-async"}
        return self.answer(PlanRecord, "POST", "plans", data=document(spec), headers=headers)

    def get_plan(self, plan_id: Id) -> PlanRecord:
        """A stored plan."""
        return self.answer(PlanRecord, "GET", f"plans/{plan_id}")

    def wait_for_plan(self, plan_id: Id, *, seconds: float = SEARCHES_SECONDS) -> PlanRecord:
        """A plan once it is made, or failed, or was cancelled.

        Raises:
            NoAnswerError: it is not, after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while (record := self.get_plan(plan_id)).finished_at is None:
            _wait_until(deadline, f"plan {plan_id} is still {record.status}")
        return record

    def cancel_plan(self, plan_id: Id) -> PlanRecord:
        """End a plan that is being made; its record stays."""
        return self.answer(PlanRecord, "POST", f"plans/{plan_id}/cancel")

    def delete_plan(self, plan_id: Id) -> None:
        """Delete a plan and the records of its jobs, also while it is being made."""
        self.delete(f"plans/{plan_id}")

    def estimate(self, spec: Spec, placement: Placement) -> Plan:
        """The price of a placement."""
        asked = {"spec": document(spec), "placement": document(placement, by_alias=True)}
        return self.answer(Plan, "POST", "estimates", data=asked, seconds=SEARCHES_SECONDS)

    def compare(self, plan_id: Id, strategies: Sequence[str]) -> Comparison:
        """What published strategies would cost beside a plan."""
        asked = {"strategies": list(strategies)}
        return self._searched(Comparison, f"plans/{plan_id}/compare", asked)

    def pareto(self, spec: Spec, *, tolerance: float = 0.0) -> FrontRecord:
        """The plans that no other beats in both seconds and price, each stored."""
        asked = {"spec": document(spec), "tolerance": tolerance}
        return self._searched(FrontRecord, "plans/pareto", asked)

    def what_if(
        self,
        spec: Spec,
        *,
        nodes: Sequence[int] = (),
        gpus: Sequence[str] = (),
        pool: str | None = None,
    ) -> WhatIfRecord:
        """The job on other clusters: other numbers of nodes, other GPUs."""
        asked = {"spec": document(spec), "nodes": list(nodes), "gpus": list(gpus), "pool": pool}
        return self._searched(WhatIfRecord, "plans/what-if", asked)

    def explain(self, plan_id: Id, options: ExplainOptions | None = None) -> Explanation:
        """Why this plan and no other."""
        asked = document(options or ExplainOptions())
        return self._searched(Explanation, f"plans/{plan_id}/explain", asked)

    def simulate(
        self, plan_id: Id, *, iterations: int = 100, seed: int = 0, trace: bool = False
    ) -> Simulation:
        """A plan's iterations as discrete events."""
        asked = {"iterations": iterations, "seed": seed, "trace": trace}
        return self._searched(Simulation, f"plans/{plan_id}/simulate", asked)

    def export(self, plan_id: Id, target: str) -> Launch:
        """A plan as the launch of another framework."""
        return self.answer(Launch, "GET", f"plans/{plan_id}/export?target={quote(target)}")

    def costs(self, plan_id: Id) -> PlanCosts:
        """What a plan will cost: an iteration, the run, a million tokens; by type of GPU."""
        return self.answer(PlanCosts, "GET", f"plans/{plan_id}/costs")

    def replan(self, plan_id: Id, options: ReplanOptions) -> Replan:
        """Whether a running plan should be kept."""
        return self._searched(Replan, f"plans/{plan_id}/replan", document(options))

    def history(self, **filters: object) -> HistoryPage:
        """The latest runs of all plans: predicted beside measured."""
        return self.answer(HistoryPage, "GET", with_query("plans/history", filters))

    def plan_history(self, plan_id: Id) -> PlanHistory:
        """The runs of a plan: predicted beside measured, over time."""
        return self.answer(PlanHistory, "GET", f"plans/{plan_id}/history")

    def submit(
        self,
        what: Spec | UUID,
        settings: RunSettings | Mapping[str, Any],
        *,
        key: str | None = None,
    ) -> JobRecord:
        """A job that runs a stored plan, by its id, or a spec that is planned first."""
        run = {"plan_id": str(what)} if isinstance(what, UUID) else {"spec": document(what)}
        asked = {**run, "settings": document(settings)}
        return self.answer(JobRecord, "POST", "jobs", data=asked, headers=_once(key))

    def measure(self, what: Measure, *, key: str | None = None) -> ProfileJobRecord:
        """A job that measures the cluster."""
        asked = {"measure": document(what)}
        return self.answer(ProfileJobRecord, "POST", "profiles", data=asked, headers=_once(key))

    def get_job(self, job_id: Id) -> JobRecord | ProfileJobRecord:
        """How far a job is, and its report or problem once it is over."""
        return self.answer(JOB, "GET", f"jobs/{job_id}")

    def retry_job(self, job_id: Id, *, key: str | None = None) -> JobRecord:
        """A new job of the plan and settings of one that is over."""
        return self.answer(JobRecord, "POST", f"jobs/{job_id}/retry", headers=_once(key))

    def cancel_job(self, job_id: Id) -> JobRecord | ProfileJobRecord:
        """Ask for the end of a job, which its worker brings about within seconds."""
        return self.answer(JOB, "POST", f"jobs/{job_id}/cancel")

    def job_logs(self, job_id: Id, *, tail: int = 1000) -> str:
        """The last lines that a job has printed."""
        return self.request("GET", f"jobs/{job_id}/logs?tail={tail}").text

    def job_events(self, job_id: Id, *, after: int = 0, retries: int = 30) -> Iterator[Event]:
        """What happens in a job, as it happens, to its end.

        A lost connection is opened again, up to `retries` times in a row.
        """
        return self.events(f"jobs/{job_id}/events", after=after, retries=retries)

    def wait_for_job(
        self, job_id: Id, *, seconds: float = SEARCHES_SECONDS
    ) -> JobRecord | ProfileJobRecord:
        """A job once it is over.

        Raises:
            NoAnswerError: it is not, after so many seconds.
        """
        deadline = time.monotonic() + seconds
        while (record := self.get_job(job_id)).finished_at is None:
            _wait_until(deadline, f"job {job_id} is still {record.status}")
        return record

    def profiles(self, **filters: object) -> Iterator[ProfileSummary]:
        """Stored profiles, newest first; `filters` as `GET /v1/profiles` has them."""
        return self.pages(TypeAdapter(Page[ProfileSummary]), "profiles", filters)

    def get_profile(self, version: str) -> ProfileRecord:
        """A stored profile with its measurements."""
        return self.answer(ProfileRecord, "GET", f"profiles/{version}")

    def _searched(self, model: type[Item], path: str, asked: object) -> Item:
        return self.answer(model, "POST", path, data=asked, seconds=SEARCHES_SECONDS)


def document(given: BaseModel | Mapping[str, Any], *, by_alias: bool = False) -> dict[str, Any]:
    """What was given as JSON has it: of a model what its maker has set."""
    if isinstance(given, BaseModel):
        unset = not by_alias  # a placement is whole
        return given.model_dump(mode="json", exclude_unset=unset, by_alias=by_alias)
    return dict(given)


def _once(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or str(uuid4())}


def _wait_until(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise NoAnswerError(otherwise)
    time.sleep(_WAIT_SECONDS)
