"""How a validation is shown: tables for people, one document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from automap.planner.validation import (
    Confusion,
    Prediction,
    Row,
    Slope,
    Summary,
    Table,
    assumption_counts,
    contradictions,
    feasibility,
    layout_regret,
    skip_counts,
    slopes,
    summarise,
)
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import plain_table

NOTHING = "-"
LOADED = "decode_step_seconds"
"""The quantity that is told by strata of load as well: plans use the lowest."""
SHOWN_SLOPES = 3
"""Slopes told without --details."""


@dataclass(frozen=True, slots=True)
class Report:
    """One table with the predictions of its rows."""

    source: str
    table: Table
    predictions: tuple[Prediction, ...]

    @property
    def rows(self) -> list[Row]:
        """The rows that were predicted, each once."""
        return list({one.row.row_id: one.row for one in self.predictions if one.predicted}.values())


def as_document(
    reports: Sequence[Report], mistakes: Mapping[str, Sequence[str]], by: Sequence[str]
) -> dict[str, object]:
    """Everything as JSON; errors are shares of one, not percentages."""
    return {
        "tables": [_table_document(report, by) for report in reports],
        "mistakes": {source: list(lines) for source, lines in mistakes.items()},
    }


def _table_document(report: Report, by: Sequence[str]) -> dict[str, object]:
    regret = layout_regret(report.predictions)
    fits = feasibility(report.predictions)
    return {
        "file": report.source,
        "kind": report.table.kind,
        "num_rows": len(report.table.rows),
        "totals": [_summary(one, ()) for one in summarise(report.predictions, by=())],
        "groups": [_summary(one, by) for one in summarise(report.predictions, by=by)],
        "loads": [_summary(one, ("load",)) for one in _strata(report.predictions)],
        "regret": None if regret is None else asdict(regret),
        "feasibility": None if fits is None else asdict(fits),
        "slopes": [asdict(one) for one in slopes(report.predictions)],
        "contradictions": [asdict(one) for one in contradictions(report.rows)],
        "skipped": skip_counts(report.predictions),
        "assumptions": assumption_counts(report.predictions),
    }


def _summary(one: Summary, by: Sequence[str]) -> dict[str, object]:
    document = asdict(one)
    key = document.pop("key")
    return dict(zip(by, key, strict=True)) | document


def _strata(predictions: Sequence[Prediction]) -> list[Summary]:
    """Decode steps by load, all engines together."""
    steps = [
        replace(one, subset=", ".join(_without_engine(one.subset)))
        for one in predictions
        if one.quantity == LOADED
    ]
    return [one for one in summarise(steps, by=("load",)) if one.num_predicted and one.key[0]]


def _without_engine(subset: str) -> list[str]:
    parts = subset.split(", ")
    return [parts[0], *parts[2:]]


def print_report(report: Report, by: Sequence[str], out: Console, *, details: bool = False) -> None:
    """A summary of the table, what is to be known of it, and in detail its groups and reasons."""
    name = Path(report.source).name
    rows = formats.number_of(len(report.table.rows), "row")
    out.print(Text(f"{name} ({report.table.kind}, {rows})", style="bold"), soft_wrap=True)
    totals = summarise(report.predictions, by=())
    if not totals:
        out.print(Text("No row to predict."))
        out.print()
        return
    shown = [one for one in totals if one.num_predicted or details] or totals
    out.print(_totals_table([*shown, *_strata(report.predictions)]))
    _print_findings(report, totals, out, details=details)
    if by:
        groups = summarise(report.predictions, by=by)
        sources = _short_sources([one.row.source for one in report.predictions])
        out.print()
        out.print(_groups_table(totals, groups, sources))
    if details:
        _print_counted("Skipped", skip_counts(report.predictions), out)
        _print_counted("Assumed", assumption_counts(report.predictions), out)
    out.print()


def _totals_table(totals: Sequence[Summary]) -> RichTable:
    """Rows and groups side by side."""
    table = plain_table()
    table.add_column("", overflow="fold")
    for header in ("rows", "mean", "bias", "held", "groups", "mean", "held"):
        table.add_column(header, justify="right", no_wrap=True)
    for one in totals:
        table.add_row(
            _name(one),
            formats.count(one.num_predicted),
            _percent(one.mean_error),
            _percent(one.bias, signed=True),
            _share(one.rows_held),
            formats.count(one.num_groups) if one.num_groups else NOTHING,
            _percent(one.group_mean_error),
            _share(one.groups_held),
        )
    return table


def _name(one: Summary) -> str:
    return ", ".join(text for text in (one.quantity, one.subset, *one.key) if text)


def _groups_table(
    totals: Sequence[Summary], groups: Sequence[Summary], sources: Mapping[str, str]
) -> RichTable:
    """Each total in bold, its groups below it; groups without a prediction are left out."""
    table = plain_table()
    table.add_column("", overflow="fold")
    for header in ("rows", "skipped", "median", "mean", "bias", "p90", "tau"):
        table.add_column(header, justify="right", no_wrap=True)
    for total in totals:
        table.add_row(_name(total), *_figures(total), style="bold")
        for one in groups:
            if (one.quantity, one.subset) == (total.quantity, total.subset) and one.num_predicted:
                key = ", ".join(sources.get(text, text) for text in one.key)
                table.add_row(Padding(Text(formats.printable(key)), (0, 0, 0, 2)), *_figures(one))
    return table


def _figures(one: Summary) -> list[str]:
    return [
        formats.count(one.num_predicted),
        formats.count(one.num_skipped) if one.num_skipped else NOTHING,
        _percent(one.median_error),
        _percent(one.mean_error),
        _percent(one.bias, signed=True),
        _percent(one.p90_error),
        NOTHING if one.kendall_tau is None else f"{one.kendall_tau:.2f}",
    ]


def _percent(share: float | None, *, signed: bool = False) -> str:
    if share is None:
        return NOTHING
    return f"{100 * share:+.1f}%" if signed else f"{100 * share:.1f}%"


def _share(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f}%"


def _short_sources(sources: Sequence[str]) -> dict[str, str]:
    """The title of each source; where several share one, with the end of its path."""
    titles = {source: source.split(";")[0].strip() for source in sources}
    shown = {}
    for source, title in titles.items():
        alike = [other for other in titles if titles[other] == title]
        path = source.split(",")[-1].strip()
        end = "/".join(path.split("/")[-2:])
        shown[source] = title if len(alike) == 1 else f"{title}, {end}"
    return shown


def _print_findings(
    report: Report, totals: Sequence[Summary], out: Console, *, details: bool
) -> None:
    """What a reader must know beside the means, a line each."""
    for one in totals:
        if one.confusion is not None:
            out.print(Text(_verdicts(one.confusion)), soft_wrap=True)
    fits = feasibility(report.predictions)
    if fits is not None:
        out.print(
            Text(
                f"Of {fits.ran} runs that ran {fits.refused} would be refused for memory; of "
                f"{fits.failed} that failed {fits.admitted} would be admitted."
            ),
            soft_wrap=True,
        )
    regret = layout_regret(report.predictions)
    if regret is not None:
        out.print(
            Text(
                f"Layouts chosen by prediction cost {_percent(regret.mean)} over the best measured "
                f"(mean of {regret.num_jobs} jobs; at most {_percent(regret.worst)})."
            ),
            soft_wrap=True,
        )
    _print_slopes(slopes(report.predictions), out, details=details)
    for wrong in contradictions(report.rows):
        line = f"Contradicts physics or its like: {wrong.row_id}: {wrong.message}"
        out.print(Text(formats.printable(line)), soft_wrap=True)
    held = sum(one.num_from_tables for one in totals)
    if held:
        out.print(Text(f"{held} of the predicted values are points of the profile's own tables."))
    hidden = sum(one.num_skipped for one in totals)
    if hidden and not details:
        out.print(Text(f"{hidden} values were skipped; --details says why."))


def _print_slopes(found: Sequence[Slope], out: Console, *, details: bool) -> None:
    shown = found if details else found[:SHOWN_SLOPES]
    for one in shown:
        name = ", ".join(text for text in (one.quantity, one.subset, one.group) if text)
        line = (
            f"Error moves {100 * one.change:+.0f}% with {one.size} from {one.low:g} to "
            f"{one.high:g}: {name} ({one.num_rows} rows)"
        )
        out.print(Text(formats.printable(line)), soft_wrap=True)
    if len(found) > len(shown):
        out.print(Text(f"{len(found) - len(shown)} more slopes; --details lists them."))


def _verdicts(cells: Confusion) -> str:
    return (
        f"Out of memory: {cells.failed_as_predicted} failed as predicted, "
        f"{cells.ran_as_predicted} ran as predicted, "
        f"{cells.failed_but_predicted_to_run} failed though predicted to run, "
        f"{cells.ran_but_predicted_to_fail} ran though predicted to fail."
    )


def _print_counted(title: str, counts: Mapping[str, int], out: Console) -> None:
    if not counts:
        return
    out.print()
    out.print(Text(f"{title}:"))
    for text, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        out.print(Text(formats.printable(f"  {number:5d}  {text}")), soft_wrap=True)
