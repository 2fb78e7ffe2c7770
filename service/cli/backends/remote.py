"""Planning on a running service, which stores the plans."""

import json
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from automap.planner import (
    ExplainOptions,
    Explanation,
    Front,
    Launch,
    Placement,
    Plan,
    Replan,
    ReplanOptions,
    Strategy,
    WhatIf,
)
from automap.planner.spec import JobSpec
from automap.planner.studies import Variant
from automap.service.cli.backends.client import ANSWER_SECONDS, Service, parsed, plan_id_of
from automap.service.cli.backends.protocol import KnownPlan, Tell, Variations
from automap.service.cli.inputs.files import read_document, read_spec, read_spec_of
from automap.service.cli.terminal.failures import BadInputError, ServerError
from automap.service.planners.deadlines import planning_deadline_seconds
from automap.service.schemas.documents import SETTINGS, SPEC, kind_of

if TYPE_CHECKING:
    from automap.planner import Simulation
    from automap.planner.simulation import Occurrence


class Remote:
    """A running service, which prices with its own tables."""

    gives_timelines = False

    def __init__(self, service: Service) -> None:
        self._service = service

    def read_spec(self, source: str, *, others: Collection[str] = ()) -> JobSpec:
        return read_spec(source)

    def read_plan(self, source: str) -> KnownPlan | JobSpec:
        plan_id = plan_id_of(source)
        if plan_id is None:
            document = read_document(source)
            if kind_of(document) in (None, SPEC, SETTINGS):
                return read_spec_of(document, source)
            plan_id = document.get("id") if isinstance(document, dict) else None
        if plan_id is None:
            raise BadInputError(
                f"{source}: the service does not know this plan",
                [
                    "give the id of a plan that is stored there, or its record: "
                    "`automap plan SPEC --server URL --json --output RECORD.json` makes one"
                ],
            )
        record = self._service.ask("GET", f"plans/{plan_id}").json()
        if record.get("plan") is None:
            raise BadInputError(
                f"{source}: this record has no plan (yet): it is {record['status']}"
            )
        plan = parsed(Plan, json.dumps(record["plan"]).encode(), self._service.server)
        return self._known(record, plan)

    def plan(self, spec: JobSpec, tell: Tell) -> KnownPlan:
        response = self._service.ask(
            "POST",
            "plans",
            data=_body(spec),
            seconds=planning_deadline_seconds(spec, overhead_seconds=ANSWER_SECONDS),
        )
        try:
            record = response.json()
            return self._known(record, Plan.model_validate(record["plan"]))
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise ServerError(
                f"{self._service.server} answered with no plan; another version? {error}"
            ) from None

    def estimate(self, spec: JobSpec, placement: Placement) -> Plan:
        asked = {
            "spec": _body(spec),
            "placement": placement.model_dump(mode="json", by_alias=True),
        }
        return self._service.answer("estimates", asked, Plan)

    def compare(self, spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
        from automap.service.schemas.studies import Comparison

        known = self.plan(spec, lambda _: None)
        asked = {"strategies": list(strategies)}
        found = self._service.answer(f"plans/{known.id}/compare", asked, Comparison)
        return known.plan, found.strategies

    def pareto(self, spec: JobSpec, *, tolerance: float, tell: Tell) -> tuple[Front, BaseModel]:
        from automap.service.schemas.studies import FrontRecord

        asked = {"spec": _body(spec), "tolerance": tolerance}
        record = self._service.answer("plans/pareto", asked, FrontRecord)
        plans = [each.plan for each in record.plans if each.plan is not None]
        same = {name: getattr(record, name) for name in FrontRecord.model_fields if name != "plans"}
        return Front(spec=spec, plans=plans, **same), record

    def what_if(self, spec: JobSpec, varied: Variations, tell: Tell) -> tuple[WhatIf, BaseModel]:
        from automap.service.schemas.studies import WhatIfRecord

        asked = {"nodes": varied.nodes, "gpus": varied.gpus, "pool": varied.pool}
        started = time.perf_counter()
        record = self._service.answer("plans/what-if", {"spec": _body(spec), **asked}, WhatIfRecord)
        variants = [
            Variant(
                plan=None if each.plan is None else each.plan.plan,
                **{name: getattr(each, name) for name in Variant.model_fields if name != "plan"},
            )
            for each in record.variants
        ]
        seconds = time.perf_counter() - started
        return WhatIf(spec=spec, variants=variants, seconds=seconds), record

    def explain(self, known: KnownPlan, options: ExplainOptions) -> Explanation:
        asked = options.model_dump(mode="json", exclude_unset=True)
        return self._service.answer(f"plans/{known.id}/explain", asked, Explanation)

    def simulate(
        self, known: KnownPlan, *, iterations: int, seed: int, trace: bool
    ) -> "tuple[Simulation, list[Occurrence]]":
        from automap.planner import Simulation

        asked = {"iterations": iterations, "seed": seed, "trace": trace}
        return self._service.answer(f"plans/{known.id}/simulate", asked, Simulation), []

    def export(self, known: KnownPlan, target: str) -> Launch:
        path = f"plans/{known.id}/export?target={quote(target)}"
        response = self._service.ask("GET", path)
        return parsed(Launch, response.content, self._service.server)

    def replan(self, known: KnownPlan, options: ReplanOptions) -> Replan:
        asked = options.model_dump(mode="json", exclude_unset=True)
        return self._service.answer(f"plans/{known.id}/replan", asked, Replan)

    def _known(self, record: dict[str, Any], plan: Plan) -> KnownPlan:
        plan_id = str(record["id"])
        url = self._service.url(f"plans/{plan_id}")
        return KnownPlan(plan, json.dumps(record, indent=2), plan_id, url)


def _body(spec: JobSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", exclude_unset=True)
