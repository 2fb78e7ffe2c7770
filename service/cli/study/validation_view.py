"""How a validation is shown: tables for people, one document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from automap.planner.validation import (
    Confusion,
    Prediction,
    Summary,
    Table,
    assumption_counts,
    skip_counts,
    summarise,
)
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.tables import plain_table

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class Report:
    """One table with the predictions of its rows."""

    source: str
    table: Table
    predictions: tuple[Prediction, ...]


def as_document(
    reports: Sequence[Report], mistakes: Mapping[str, Sequence[str]], by: Sequence[str]
) -> dict[str, object]:
    """Everything as JSON; errors are shares of one, not percentages."""
    return {
        "tables": [
            {
                "file": report.source,
                "kind": report.table.kind,
                "num_rows": len(report.table.rows),
                "totals": [_summary(one, ()) for one in summarise(report.predictions, by=())],
                "groups": [_summary(one, by) for one in summarise(report.predictions, by=by)],
                "skipped": skip_counts(report.predictions),
                "assumptions": assumption_counts(report.predictions),
            }
            for report in reports
        ],
        "mistakes": {source: list(lines) for source, lines in mistakes.items()},
    }


def _summary(one: Summary, by: Sequence[str]) -> dict[str, object]:
    document = asdict(one)
    key = document.pop("key")
    return dict(zip(by, key, strict=True)) | document


def print_report(report: Report, by: Sequence[str], out: Console) -> None:
    """Figures, then what was skipped and what was assumed, in rows."""
    name = Path(report.source).name
    rows = formats.number_of(len(report.table.rows), "row")
    out.print(Text(f"{name} ({report.table.kind}, {rows})", style="bold"), soft_wrap=True)
    totals = summarise(report.predictions, by=())
    groups = summarise(report.predictions, by=by)
    sources = _short_sources([one.row.source for one in report.predictions])
    if totals:
        out.print(_table(totals, groups, sources))
        _print_notes(report, totals, out)
    else:
        out.print(Text("No row to predict."))
    out.print()


def _table(
    totals: Sequence[Summary], groups: Sequence[Summary], sources: Mapping[str, str]
) -> RichTable:
    """Each total in bold, its groups below it; groups without a prediction are left out."""
    table = plain_table()
    table.add_column("", overflow="fold")
    for header in ("rows", "skipped", "median", "mean", "bias", "p90", "tau"):
        table.add_column(header, justify="right", no_wrap=True)
    for total in totals:
        name = f"{total.quantity}, {total.subset}" if total.subset else total.quantity
        table.add_row(name, *_figures(total), style="bold")
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


def _print_notes(report: Report, totals: Sequence[Summary], out: Console) -> None:
    for one in totals:
        if one.confusion is not None:
            out.print(Text(_verdicts(one.confusion)), soft_wrap=True)
    _print_counted("Skipped", skip_counts(report.predictions), out)
    _print_counted("Assumed", assumption_counts(report.predictions), out)
    held = sum(one.num_from_tables for one in totals)
    if held:
        out.print(Text(f"\n{held} of the predicted values are points of the profile's own tables."))


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
