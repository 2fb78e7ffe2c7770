"""Planning in this process."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import BaseModel

from automap import planner
from automap.planner import Placement, Plan, Strategy, catalogue
from automap.planner.spec import JobSpec
from automap.service.cli.backends.protocol import KnownPlan, Tell, Variations
from automap.service.cli.inputs.files import read_runnable, read_spec
from automap.service.cli.inputs.profile_folders import by_gpu_type, with_profiles
from automap.service.cli.terminal.failures import BadInputError

if TYPE_CHECKING:
    from automap.planner import (
        ExplainOptions,
        Explanation,
        Front,
        Launch,
        Replan,
        ReplanOptions,
        Simulation,
        WhatIf,
    )
    from automap.planner.simulation import Occurrence


class Local:
    """This process, with the measured profiles in these folders.

    The planner's functions are imported where they are first called: `planner` is lazy.
    """

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
        return _known(planner.make_plan_or_explain(spec, profiles=self._profiles, tell=tell))

    def estimate(self, spec: JobSpec, placement: Placement) -> Plan:
        return planner.estimate(spec, placement)

    def compare(self, spec: JobSpec, strategies: Sequence[str]) -> tuple[Plan, list[Strategy]]:
        plan = self.plan(spec, lambda _: None).plan
        return plan, planner.compare(spec, plan, list(strategies))

    def pareto(self, spec: JobSpec, *, tolerance: float, tell: Tell) -> "tuple[Front, BaseModel]":
        front = planner.pareto(spec, tolerance=tolerance, tell=tell)
        return front, front

    def what_if(self, spec: JobSpec, varied: Variations, tell: Tell) -> "tuple[WhatIf, BaseModel]":
        found = planner.what_if(
            spec,
            nodes=varied.nodes,
            gpus=varied.gpus,
            pool=varied.pool,
            profiles=self._profiles,
            tell=tell,
        )
        return found, found

    def explain(self, known: KnownPlan, options: "ExplainOptions") -> "Explanation":
        return planner.explain(known.plan, options)

    def simulate(
        self, known: KnownPlan, *, iterations: int, seed: int, trace: bool
    ) -> "tuple[Simulation, list[Occurrence]]":
        simulation, timeline = planner.simulate(known.plan, iterations=iterations, seed=seed)
        if trace:
            from automap.planner.simulation import chrome_trace

            simulation = simulation.model_copy(update={"trace": chrome_trace(timeline)})
        return simulation, timeline

    def export(self, known: KnownPlan, target: str) -> "Launch":
        return planner.export(known.plan, target)

    def replan(self, known: KnownPlan, options: "ReplanOptions") -> "Replan":
        return planner.replan(known.plan, options)

    def _planable(self, spec: JobSpec, others: Collection[str] = ()) -> JobSpec:
        """The spec with the measured profiles of its GPU types.

        Raises:
            BadInputError: its cluster is a name that a service knows.
        """
        if self._folders:
            # What would make an infeasible job fit may be any type of GPU.
            tried = tuple(catalogue.gpu_types()) if spec.search.explain_infeasible else others
            spec = with_profiles(spec, self._profiles, others=tried)
        if isinstance(spec.cluster, str):
            raise BadInputError(
                f"cluster: {spec.cluster!r} names a cluster stored on a service",
                ["give the pools in the spec, or use --server URL"],
            )
        return spec


def _known(plan: Plan) -> KnownPlan:
    return KnownPlan(plan, plan.model_dump_json(indent=2, by_alias=True))
