"""The command that explains a plan: what it shows, and what it asks the planner."""

from collections.abc import Iterator, Sequence
from typing import get_args

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from automap.planner import ExplainOptions, Explanation
from automap.planner.explanation import Alternative, Part, Regret, Sensitivity, Threshold
from automap.service.cli.backends.choice import backend_of
from automap.service.cli.options.plans import ExplainArguments
from automap.service.cli.plan.headline import headline
from automap.service.cli.plan.inputs import read_or_make_plan, working
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import naming_options, need_valid, reporting_check
from automap.service.cli.terminal.tables import plain_table


def run_explain(given: ExplainArguments) -> None:
    """Explain a plan, or plan a spec first."""
    options = _options(given)
    backend = backend_of(given.where)
    known = read_or_make_plan(backend, given.plan_or_spec, given.show)
    refusal = f"{given.plan_or_spec}: the plan cannot be explained"
    with (
        naming_options({"plan": given.plan_or_spec}, otherwise=refusal),
        reporting_check(refusal),
        working("Solving the alternatives", given.show),
    ):
        found = backend.explain(known, options)
    if given.show.json:
        console.write_json(found.model_dump_json(indent=2, by_alias=True))
        return
    out, quiet = console.stdout_console(), given.show.quiet
    out.print(headline(known.plan), soft_wrap=quiet)
    if quiet:
        for line in _quiet_lines(found):
            out.print(Text(line), soft_wrap=True)
    else:
        out.print(explanation_view(found))


def _quiet_lines(found: Explanation) -> Iterator[str]:
    """A line per result."""
    for each in found.alternatives:
        yield f"{each.text}: {each.answer}"
    for row in found.sensitivity:
        yield f"{row.subject}: longer {_threshold(row.more)}, shorter {_threshold(row.less)}"
    if found.regret is not None:
        worst = max(found.regret.sampled.max, found.regret.worst_corner)
        yield f"regret: p95 {_share(found.regret.sampled.p95)}, at worst {_share(worst)}"


def _options(given: ExplainArguments) -> ExplainOptions:
    need_valid("--part", given.part or [], get_args(Part))
    options = {
        "parts": given.part or None,
        "fewer_gpus": given.fewer_gpus,
        "scenarios": given.scenarios,
        "search_seconds": given.search_seconds,
    }
    return ExplainOptions.model_validate({k: v for k, v in options.items() if v is not None})


def explanation_view(found: Explanation) -> Group:
    """All parts that were asked for."""
    sections: list[tuple[str, RenderableType]] = []
    if found.alternatives:
        sections.append(("Why not", _alternatives_table(found.alternatives)))
    if found.sensitivity:
        title = f"Error at which another plan wins by more than {_share(found.margin)}"
        sections.append((title, _sensitivity_table(found.sensitivity)))
    if found.regret is not None:
        sections.append(("Regret if the estimates are wrong", _regret_lines(found.regret)))
    parts: list[RenderableType] = []
    for title, section in sections:
        parts += [Text(), Text(title, style="bold underline"), section]
    return Group(*parts)


def _alternatives_table(alternatives: Sequence[Alternative]) -> Table:
    table = plain_table()
    table.add_column("instead", overflow="fold", ratio=2)
    table.add_column("iteration\nseconds", justify="right", no_wrap=True)
    table.add_column("answer", overflow="fold", ratio=5)
    for each in alternatives:
        seconds = each.iteration_seconds
        table.add_row(
            Text(each.text),
            "-" if seconds is None else formats.seconds(seconds),
            Text(each.answer),
        )
    return table


def _sensitivity_table(rows: Sequence[Sensitivity]) -> Group:
    """Thresholds, and below them the plans that win, each in a line of its own."""
    table, winners = plain_table(), list[str]()
    table.add_column("estimate", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("its own\n± error", justify="right", no_wrap=True)
    table.add_column("longer", justify="right", no_wrap=True)
    table.add_column("shorter", justify="right", no_wrap=True)
    table.add_column("then wins", justify="right", no_wrap=True)
    for row in rows:
        nearest = min(
            (t for t in (row.more, row.less) if t.error is not None),
            key=lambda t: abs(t.error or 0.0),
            default=None,
        )
        if nearest is not None and nearest.winner not in winners:
            winners.append(nearest.winner)
        table.add_row(
            Text(row.subject),
            formats.seconds(row.seconds),
            _share(row.spread),
            _threshold(row.more),
            _threshold(row.less),
            "" if nearest is None else f"plan {winners.index(nearest.winner) + 1}",
        )
    lines = [Text(f"plan {number}: {winner}") for number, winner in enumerate(winners, 1)]
    return Group(table, *lines)


def _threshold(found: Threshold) -> str:
    """+12 %; ≤ where a search was cut short; none up to the furthest that was looked at."""
    mark = "" if found.proven else "?"
    if found.error is None:
        return f"none to {100 * found.searched:+.0f} %{mark}"
    return f"{100 * found.error:+.1f} %{mark}"


def _regret_lines(found: Regret) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    sampled = found.sampled
    table.add_row(
        "drawn",
        f"p50 {_share(sampled.p50)}, p95 {_share(sampled.p95)}, max {_share(sampled.max)} "
        f"over {formats.number_of(found.scenarios, 'scenario')}",
    )
    errors = ", ".join(f"{name} {100 * e:+.0f} %" for name, e in found.worst_errors.items())
    table.add_row("worst corner", f"{_share(found.worst_corner)} of {found.corners} ({errors})")
    table.add_row("each to within", _share(found.margin))
    if found.unproven:
        table.add_row("cut short", f"{found.unproven}: their regret may be larger")
    return table


def _share(value: float) -> str:
    """In percent, to two digits and without an exponent; what is float noise as nothing."""
    percent = 100 * value
    return f"{float(f'{percent:.2g}'):g} %" if abs(percent) >= 0.005 else "0 %"
