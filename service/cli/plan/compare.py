"""`automap compare`: a plan beside what named strategies would make of the job."""

import json
from collections.abc import Sequence
from typing import get_args

from rich.text import Text

from automap.planner import Plan, Strategy
from automap.planner.spec import StrategyName
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.plans import CompareArguments
from automap.service.cli.plan.compared_schedules import compare_schedules
from automap.service.cli.plan.compared_targets import compare_targets
from automap.service.cli.plan.headline import headline
from automap.service.cli.plan.inputs import planning_message, working
from automap.service.cli.plan.strategies import strategy_lines, strategy_table
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import need_valid


def run_compare(given: CompareArguments) -> None:
    """Plan, then price the named strategies, or all but those that take long."""
    backend = backend_of(given.where)
    spec = backend.read_spec(given.spec)
    if given.schedules:
        compare_schedules(given, spec)
        return
    if given.targets is not None:
        compare_targets(given, spec)
        return
    need_valid("--strategy", given.strategy or [], get_args(StrategyName))
    # Brings the solver in.
    from automap.planner import QUICK

    strategies = given.strategy or QUICK
    with working(planning_message(spec), given.show):
        plan, compared = backend.compare(spec, strategies)
    if given.show.json:
        document = {
            "plan": plan.model_dump(mode="json", by_alias=True),
            "strategies": [item.model_dump(mode="json", by_alias=True) for item in compared],
        }
        console.write_json(json.dumps(document, indent=2))
        return
    out = console.stdout_console()
    rows = [_as_strategy(plan), *compared]
    if given.show.quiet:
        for line in strategy_lines(rows):
            out.print(line, soft_wrap=True)
        return
    out.print(headline(plan))
    out.print()
    out.print(strategy_table(rows, claims=True))
    _describe([item.name for item in compared])


def _as_strategy(plan: Plan) -> Strategy:
    """The plan itself as the first row of a comparison."""
    return Strategy(
        name="automap",
        feasible=True,
        iteration_seconds=plan.iteration_seconds,
        times_slower=1.0,
        price_per_iteration=plan.price_per_iteration,
        reason="this plan",
    )


def _describe(names: Sequence[str]) -> None:
    from automap.planner import STRATEGIES

    out = console.stdout_console()
    out.print()
    for name in names:
        info = STRATEGIES[name]
        reference = f" ({info.reference})" if info.reference else ""
        out.print(Text(f"{name}: {info.description}{reference}", style="dim"))
