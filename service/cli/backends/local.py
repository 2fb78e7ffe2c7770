"""Planning in this process. The planner's parts are imported where a command first needs them."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import BaseModel

from automap.planner import catalogue
from automap.planner.plan.types import Placement, Plan, Strategy
from automap.planner.spec import JobSpec
from automap.service.cli.backends.protocol import KnownPlan, Tell, Variations
from automap.service.cli.inputs.files import read_runnable, read_spec
from automap.service.cli.inputs.profile_folders import by_gpu_type, with_profiles
from automap.service.cli.terminal.failures import BadInputError

if TYPE_CHECKING:
    from automap.planner.explanation.result import ExplainOptions, Explanation
    from automap.planner.replanning.result import Replan, ReplanOptions
    from automap.planner.simulation.result import Simulation
    from automap.planner.simulation.timeline import Occurrence
    from automap.planner.studies.result import Front, WhatIf


class Local:
    """This process, with the measured profiles in these folders."""

    gives_timelines = True

    def __init__(self, profiles: Sequence[str] = ()) -> None:
        self._folders = profiles

    @cached_property
    def _profiles(self) -> dict[str, str]:
        """GPU type → the folder of what was measured on it."""
        return by_gpu_type(self._folders)

    def read_spec(self, source: str, *, others: Collection[str] = ()) -> JobSpec:
        return self._planable(read_spec(source), others)

    def read_plan(self, source: str) -> KnownPlan | JobSpec:
        given = read_runnable(source)
        if isinstance(given, JobSpec):
            return self._planable(given)
        if self._folders:
            raise BadInputError(
                f"--profile: {source} is a plan, which has its prices already",
                ["give the job spec, which is then planned with this profile"],
            )
        return _known(given)

    def plan(self, spec: JobSpec, tell: Tell) -> KnownPlan:
        from automap.planner.studies.infeasibility_report import make_plan_or_explain

        return _known(make_plan_or_explain(spec, profiles=self._profiles, tell=tell))

    def estimate(self, spec: JobSpec, placement: Placement) -> Plan:
        from automap.planner.planning import estimate

        return estimate(spec, placement)

    def compare(self, spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
        from automap.planner.planning import QUICK, compare

        plan = self.plan(spec, lambda _: None).plan
        return plan, compare(spec, plan, list(strategies or QUICK))

    def pareto(self, spec: JobSpec, *, tolerance: float, tell: Tell) -> "tuple[Front, BaseModel]":
        from automap.planner.studies.pareto import make_front

        front = make_front(spec, tolerance=tolerance, tell=tell)
        return front, front

    def what_if(self, spec: JobSpec, varied: Variations, tell: Tell) -> "tuple[WhatIf, BaseModel]":
        from automap.planner.studies.what_if import make_what_if

        found = make_what_if(
            spec,
            nodes=varied.nodes,
            gpus=varied.gpus,
            pool=varied.pool,
            profiles=self._profiles,
            tell=tell,
        )
        return found, found

    def explain(self, known: KnownPlan, options: "ExplainOptions") -> "Explanation":
        from automap.planner.explanation.explain import explain

        return explain(known.plan, options)

    def simulate(
        self, known: KnownPlan, *, iterations: int, seed: int, trace: bool
    ) -> "tuple[Simulation, list[Occurrence]]":
        from automap.planner.simulation.chrome_trace import chrome_trace
        from automap.planner.simulation.report import simulate_plan

        simulation, timeline = simulate_plan(known.plan, iterations=iterations, seed=seed)
        if trace:
            simulation = simulation.model_copy(update={"trace": chrome_trace(timeline)})
        return simulation, timeline

    def replan(self, known: KnownPlan, options: "ReplanOptions") -> "Replan":
        from automap.planner.replanning.replan import replan

        return replan(known.plan, options)

    def _planable(self, spec: JobSpec, others: Collection[str] = ()) -> JobSpec:
        """The spec with the measured profiles of its GPU types.

        Raises:
            BadInputError: its cluster is a name that a service knows.
        """
        if self._profiles:
            # What would make an infeasible job fit may be any type of GPU.
            tried = tuple(catalogue.gpu_types()) if spec.search.explain_infeasible else others
            spec = with_profiles(spec, self._profiles, others=tried)
        if isinstance(spec.cluster, str):
            raise BadInputError(
                f"cluster: {spec.cluster!r} names a cluster stored on a service",
                ["give the pools in the spec, or use --server URL with `automap plan`"],
            )
        return spec


def _known(plan: Plan) -> KnownPlan:
    return KnownPlan(plan, plan.model_dump_json(indent=2, by_alias=True))
