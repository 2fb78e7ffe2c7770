"""The planner's door: from a job spec to a placement plan, and every question about one.

Service, executor and profiler import these names, and the types that the rooms `spec`, `plan`,
`catalogue`, `dataflow`, `job`, `profiles`, `explanation`, `replanning`, `simulation`, `studies`,
`runs`, `validation`, `cost` and the module `errors` export; nothing behind them.

A name is imported when it is first asked for: reading a spec needs no solver.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automap.planner.errors import InfeasibleError as InfeasibleError
    from automap.planner.errors import NoSolutionInTimeError as NoSolutionInTimeError
    from automap.planner.errors import PlanCheckError as PlanCheckError
    from automap.planner.errors import PlanningError as PlanningError
    from automap.planner.errors import Reason as Reason
    from automap.planner.errors import SpecError as SpecError
    from automap.planner.explanation.explain import explain as explain
    from automap.planner.explanation.result import ExplainOptions as ExplainOptions
    from automap.planner.explanation.result import Explanation as Explanation
    from automap.planner.plan.types import Placement as Placement
    from automap.planner.plan.types import Plan as Plan
    from automap.planner.plan.types import Strategy as Strategy
    from automap.planner.planning import STRATEGIES as STRATEGIES
    from automap.planner.planning import compare as compare
    from automap.planner.planning import estimate as estimate
    from automap.planner.planning import make_plan as make_plan
    from automap.planner.replanning.replan import replan as replan
    from automap.planner.replanning.result import Replan as Replan
    from automap.planner.replanning.result import ReplanOptions as ReplanOptions
    from automap.planner.runs.suggestion import suggest as suggest
    from automap.planner.simulation.report import simulate as simulate
    from automap.planner.simulation.result import Simulation as Simulation
    from automap.planner.spec import JobSpec as JobSpec
    from automap.planner.studies.infeasibility_report import (
        make_plan_or_explain as make_plan_or_explain,
    )
    from automap.planner.studies.pareto import pareto as pareto
    from automap.planner.studies.result import Front as Front
    from automap.planner.studies.result import WhatIf as WhatIf
    from automap.planner.studies.what_if import what_if as what_if
    from automap.planner.validation.validate import validate as validate

_HOMES = {
    "errors": (
        "InfeasibleError",
        "NoSolutionInTimeError",
        "PlanCheckError",
        "PlanningError",
        "Reason",
        "SpecError",
    ),
    "explanation.explain": ("explain",),
    "explanation.result": ("ExplainOptions", "Explanation"),
    "plan.types": ("Placement", "Plan", "Strategy"),
    "planning": ("STRATEGIES", "compare", "estimate", "make_plan"),
    "replanning.replan": ("replan",),
    "replanning.result": ("Replan", "ReplanOptions"),
    "runs.suggestion": ("suggest",),
    "simulation.report": ("simulate",),
    "simulation.result": ("Simulation",),
    "spec": ("JobSpec",),
    "studies.infeasibility_report": ("make_plan_or_explain",),
    "studies.pareto": ("pareto",),
    "studies.result": ("Front", "WhatIf"),
    "studies.what_if": ("what_if",),
    "validation.validate": ("validate",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
