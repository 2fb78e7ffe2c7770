"""A service's lists, what it says of plans and jobs, who may use it, and what was spent there."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from pydantic import TypeAdapter

from automap.planner.plan import PlanDifference
from automap.service.client.transport import Transport
from automap.service.schemas.access import ApiKeyRecord, AuditRecord, CreatedApiKey, NewApiKey
from automap.service.schemas.base import Page
from automap.service.schemas.budgets import BudgetRecord, NewBudget
from automap.service.schemas.costs import Costs
from automap.service.schemas.descriptions import DescriptionPatch
from automap.service.schemas.jobs import JobRecord
from automap.service.schemas.measurements import AnyJobRecord, AnyJobSummary, ProfileJobRecord
from automap.service.schemas.plans import PlanSummary

Id = UUID | str
Item = TypeVar("Item")
JOB: TypeAdapter[JobRecord | ProfileJobRecord] = TypeAdapter(AnyJobRecord)
_JOBS: TypeAdapter[Page[AnyJobSummary]] = TypeAdapter(Page[AnyJobSummary])


class Records(Transport):
    """What is kept beside plans and jobs, and lists of all of it."""

    def plans(self, **filters: object) -> Iterator[PlanSummary]:
        """Stored plans, newest first; `filters` as `GET /v1/plans` has them."""
        return self.pages(TypeAdapter(Page[PlanSummary]), "plans", filters)

    def jobs(self, **filters: object) -> Iterator[AnyJobSummary]:
        """Jobs, newest first; `filters` as `GET /v1/jobs` has them."""
        return self.pages(_JOBS, "jobs", filters)

    def describe_plan(self, plan_id: Id, patch: DescriptionPatch) -> PlanSummary:
        """Rename a plan, label it, note something of it: what the patch has set."""
        return self.answer(PlanSummary, "PATCH", f"plans/{plan_id}", data=_set(patch))

    def describe_job(self, job_id: Id, patch: DescriptionPatch) -> JobRecord | ProfileJobRecord:
        """Rename a job, label it, note something of it; with a `JobPatch` change its priority."""
        return self.answer(JOB, "PATCH", f"jobs/{job_id}", data=_set(patch))

    def diff(self, before: Id, after: Id) -> PlanDifference:
        """What differs between two stored plans: figures, calls, placement, spec."""
        return self.answer(PlanDifference, "GET", f"plans/{before}/diff?with={after}")

    def spent(
        self, *, by: str = "day", after: datetime | None = None, before: datetime | None = None
    ) -> Costs:
        """What runs have cost, by `day`, `owner`, `model`, `plan` or `label:KEY`."""
        times = {"after": after and after.isoformat(), "before": before and before.isoformat()}
        return self.answer(Costs, "GET", with_query("costs", {"by": by, **times}))

    def budgets(self) -> Iterator[BudgetRecord]:
        """Budgets, newest first, and how far they are used this month."""
        return self.pages(TypeAdapter(Page[BudgetRecord]), "budgets", {})

    def set_budget(self, new: NewBudget) -> BudgetRecord:
        """Have those warned who use more than this in a month."""
        return self.answer(BudgetRecord, "POST", "budgets", data=new.model_dump(mode="json"))

    def delete_budget(self, budget_id: Id) -> None:
        """Warn of it no more."""
        self.delete(f"budgets/{budget_id}")

    def keys(self, *, owner: str | None = None) -> Iterator[ApiKeyRecord]:
        """Keys, newest first, those that were revoked among them."""
        return self.pages(TypeAdapter(Page[ApiKeyRecord]), "keys", {"owner": owner})

    def create_key(self, new: NewApiKey) -> CreatedApiKey:
        """A new key; its secret is in the answer alone."""
        return self.answer(CreatedApiKey, "POST", "keys", data=new.model_dump(mode="json"))

    def revoke_key(self, key_id: Id) -> ApiKeyRecord:
        """Refuse a key from now on."""
        return self.answer(ApiKeyRecord, "DELETE", f"keys/{key_id}")

    def audit(self, **filters: object) -> Iterator[AuditRecord]:
        """Requests that could change something, or were refused, newest first."""
        return self.pages(TypeAdapter(Page[AuditRecord]), "audit", filters)

    def pages(
        self, page: TypeAdapter[Page[Item]], path: str, filters: Mapping[str, object]
    ) -> Iterator[Item]:
        """The items of a list, page by page as they are read."""
        asked = {"limit": 200, **filters}
        while True:
            found = self.answer(page, "GET", with_query(path, asked))
            yield from found.items
            if found.next_cursor is None:
                return
            asked["cursor"] = found.next_cursor


def with_query(path: str, filters: Mapping[str, object]) -> str:
    """The path with the filters that are given; each of several values by itself."""
    given = {name: value for name, value in filters.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _set(patch: DescriptionPatch) -> dict[str, Any]:
    return patch.model_dump(mode="json", exclude_unset=True)
