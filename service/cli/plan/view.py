"""A plan for people: first lines, warnings, calls, copies, chart, and the nearest usual layout."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import Plan
from automap.service.cli.plan.call_table import call_table
from automap.service.cli.plan.copy_table import copy_table
from automap.service.cli.plan.details import details
from automap.service.cli.plan.gantt import gantt
from automap.service.cli.plan.headline import headline, network, runner
from automap.service.cli.plan.strategies import nearest_usual
from automap.service.cli.terminal import formats


def plan_view(plan: Plan, *, width: int, unicode: bool = True, with_details: bool = False) -> Group:
    """A plan, `width` columns wide; `with_details` everything that is known of it."""
    parts: list[RenderableType] = [headline(plan), runner(plan, unicode=unicode)]
    parts += [Text(network(plan, each)) for each in plan.assumed_networks]
    parts += [Text(f"warning: {line}", style="yellow") for line in plan.warnings]
    copies = copy_table(plan.copies, width=width)
    parts += [Text(), call_table(plan, width=width), Text(), copies, Text()]
    parts += [_title(_chart_title(plan)), gantt(plan, width=width, unicode=unicode), Text()]
    parts.append(_summary(plan, with_details=with_details))
    if with_details:
        for title, section in details(plan):
            parts += [Text(), _title(title), section]
    return Group(*parts)


def _title(text: str) -> Text:
    return Text(text, style="bold underline")


def _chart_title(plan: Plan) -> str:
    if plan.staleness == 0 and plan.iteration_barrier:
        return "One iteration"
    title = "One period of the repeating schedule (iterations overlap"
    if plan.staleness:
        title += f"; rollouts are {formats.number_of(plan.staleness, 'iteration')} old"
    return title + ")"


def _summary(plan: Plan, *, with_details: bool) -> Table:
    """What else costs what, and where the rest is told."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, value in _summary_lines(plan, with_details=with_details):
        table.add_row(Text(name), Text(value))
    return table


def _of_more(plan: Plan) -> str:
    """The price of the run; of a million tokens where the spec has one iteration, its default."""
    if plan.spec.workload.iterations == 1:
        return f"{formats.price(plan.price_per_million_tokens)} a million tokens"
    return f"{formats.price(plan.run_price)} the run of {formats.duration(plan.run_seconds)}"


def _summary_lines(plan: Plan, *, with_details: bool) -> Iterator[tuple[str, str]]:
    if plan.alternatives:
        yield "usual layout", nearest_usual(plan)
    yield "price", f"{formats.price(plan.price_per_iteration)} an iteration, {_of_more(plan)}"
    rest = len(plan.assumptions) - len(plan.warnings)
    if not with_details:
        assumed = f", {formats.number_of(rest, 'assumption')}" if rest else ""
        yield "--details", f"search, software, bytes, strategies{assumed}"


def print_plan(plan: Plan, console: Console, *, unicode: bool, with_details: bool = False) -> None:
    """Write the view."""
    view = plan_view(plan, width=console.width, unicode=unicode, with_details=with_details)
    console.print(view)
