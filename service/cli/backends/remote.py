"""Planning on a running service, which stores the plans."""

import json
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

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
from automap.service.cli.backends.client import Service, parsed, plan_id_of
from automap.service.cli.backends.protocol import KnownPlan, Tell, Variations
from automap.service.cli.inputs.files import read_document, read_spec, read_spec_of
from automap.service.cli.terminal.failures import BadInputError
from automap.service.client import Client
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
        return self._known(record)

    def plan(self, spec: JobSpec, tell: Tell) -> KnownPlan:
        with self._service.telling():
            return self._known(self._client.plan_document(spec))

    def estimate(self, spec: JobSpec, placement: Placement) -> Plan:
        with self._service.telling():
            return self._client.estimate(spec, placement)

    def compare(self, spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
        known = self.plan(spec, lambda _: None)
        with self._service.telling():
            return known.plan, self._client.compare(known.id, strategies).strategies

    def pareto(self, spec: JobSpec, *, tolerance: float, tell: Tell) -> tuple[Front, BaseModel]:
        with self._service.telling():
            record = self._client.pareto(spec, tolerance=tolerance)
        plans = [each.plan for each in record.plans if each.plan is not None]
        fields = type(record).model_fields
        same = {name: getattr(record, name) for name in fields if name != "plans"}
        return Front(spec=spec, plans=plans, **same), record

    def what_if(self, spec: JobSpec, varied: Variations, tell: Tell) -> tuple[WhatIf, BaseModel]:
        started = time.perf_counter()
        with self._service.telling():
            record = self._client.what_if(
                spec, nodes=varied.nodes, gpus=varied.gpus, pool=varied.pool
            )
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
        with self._service.telling():
            return self._client.explain(known.id, options)

    def simulate(
        self, known: KnownPlan, *, iterations: int, seed: int, trace: bool
    ) -> "tuple[Simulation, list[Occurrence]]":
        with self._service.telling():
            found = self._client.simulate(known.id, iterations=iterations, seed=seed, trace=trace)
        return found, []

    def export(self, known: KnownPlan, target: str) -> Launch:
        with self._service.telling():
            return self._client.export(known.id, target)

    def replan(self, known: KnownPlan, options: ReplanOptions) -> Replan:
        with self._service.telling():
            return self._client.replan(known.id, options)

    @property
    def _client(self) -> Client:
        return self._service.client

    def _known(self, record: dict[str, Any]) -> KnownPlan:
        """A plan, and its record as the service has it."""
        plan = parsed(Plan, json.dumps(record.get("plan")).encode(), self._service)
        plan_id = str(record.get("id"))
        url = self._service.url(f"plans/{plan_id}")
        return KnownPlan(plan, json.dumps(record, indent=2), plan_id, url)
