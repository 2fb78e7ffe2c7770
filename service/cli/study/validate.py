"""The command that compares predictions with published measurements: validate."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from automap.planner.units import MIB
from automap.planner.validation import (
    DIMENSIONS,
    NotATableError,
    Prediction,
    Table,
    group_of,
    interval_of,
    parse_table,
)
from automap.service.cli.options.plans import ValidateArguments
from automap.service.cli.study.validation_view import Report, as_document, print_report
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, need_valid
from automap.service.cli.terminal.files import need_folder
from automap.service.cli.terminal.picture import need_picture

MAX_TABLE_BYTES = 64 * MIB
QUALITIES = ("A", "B", "C")
SHOWN_MISTAKES = 40
DEFAULT_DIMENSIONS = ("source", "gpu", "precision")
FIRST_COLUMNS = ("row_id", "quantity", "predicted", "measured", "skipped_because")
LAST_COLUMNS = ("low", "high", "group", "provenance", "table", "assumptions")


def run_validate(given: ValidateArguments) -> None:
    """Predict every row of the tables and show how wrong the predictions are."""
    qualities = _listed("--quality", given.quality.upper(), QUALITIES)
    chosen = None if given.by is None else _listed("--by", given.by, tuple(DIMENSIONS))
    dimensions = chosen or DEFAULT_DIMENSIONS
    _check_outputs(given)
    with console.progress("Predicting", quiet=False):
        reports, mistakes = _reports(given.tables, qualities)
    _write_rows(given.rows, reports)
    if given.plot is not None and any(report.predictions for report in reports):
        from automap.service.cli.study.pictures import draw_validation

        draw_validation([one for report in reports for one in report.predictions], given.plot)
    if given.json:
        document = as_document(reports, mistakes, dimensions)
        console.write_json(json.dumps(document, indent=2, allow_nan=False))
    else:
        for report in reports:
            shown = dimensions if given.details or chosen else ()
            print_report(report, shown, console.stdout_console(), details=given.details)
    if mistakes:
        raise _refusal(mistakes)


def _reports(
    sources: Sequence[str], qualities: Sequence[str]
) -> tuple[list[Report], dict[str, list[str]]]:
    """(a report per readable table, mistakes by file); a bad file does not stop the others."""
    from automap.planner import validate

    reports: list[Report] = []
    mistakes: dict[str, list[str]] = {}
    for source in sources:
        try:
            table = _read_table(source)
        except NotATableError as error:
            mistakes[source] = [str(error)]
            continue
        found = tuple(validate(table.rows, qualities=qualities))
        reports.append(Report(source, table, found))
        if table.mistakes:
            mistakes[source] = [str(mistake) for mistake in table.mistakes]
    return reports, mistakes


def _read_table(source: str) -> Table:
    try:
        with Path(source).open("rb") as file:
            content = file.read(MAX_TABLE_BYTES + 1)
    except OSError as error:
        raise NotATableError(f"cannot read it: {error.strerror or error}") from None
    if len(content) > MAX_TABLE_BYTES:
        raise NotATableError(f"larger than {formats.gib(MAX_TABLE_BYTES)} GiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotATableError(f"not text in UTF-8 (byte {error.start})") from None
    if "\x00" in text:
        raise NotATableError("not text: it has NUL characters")
    return parse_table(text)


def _refusal(mistakes: dict[str, list[str]]) -> BadInputError:
    lines = [f"{source}: {line}" for source, found in mistakes.items() for line in found]
    hidden = len(lines) - SHOWN_MISTAKES
    shown = lines[:SHOWN_MISTAKES]
    if hidden > 0:
        shown.append(f"… and {hidden} more; --json lists all")
    number = formats.number_of(len(lines), "mistake")
    return BadInputError(f"{number} in the tables; what they concern was left out", shown)


def _listed(option: str, given: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a comma-separated option, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    need_valid(option, names, valid)
    if not names:
        raise BadInputError(f"{option}: names nothing (valid: {', '.join(valid)})")
    return names


def _check_outputs(given: ValidateArguments) -> None:
    """Say so before the work, not after it, when a result could not or must not be written."""
    tables = {Path(source).resolve() for source in given.tables}
    for path in (given.rows, given.plot):
        need_folder(path)
        if path is not None and Path(path).resolve() in tables:
            raise BadInputError(f"cannot write {path}: it is one of the tables that are read")
    need_picture(given.plot, option="--plot")


def _write_rows(path: str | None, reports: Sequence[Report]) -> None:
    if path is None:
        return
    parts = dict.fromkeys(
        name for report in reports for one in report.predictions for name in one.breakdown
    )
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(
                file, [*FIRST_COLUMNS, *parts, *LAST_COLUMNS], restval="", lineterminator="\n"
            )
            writer.writeheader()
            for report in reports:
                writer.writerows(_row(report.source, one) for one in report.predictions)
                writer.writerows(_refused(report))
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None


def _refused(report: Report) -> Iterator[dict[str, object]]:
    """The rows that were left out, each once per mistake."""
    for mistake in report.table.mistakes:
        if mistake.line > 1:
            yield {
                "row_id": mistake.row_id or "",
                "skipped_because": f"refused: {mistake}",
                "table": Path(report.source).name,
            }


def _row(source: str, one: Prediction) -> dict[str, object]:
    low, high = interval_of(one) or (None, None)
    return {
        "row_id": one.row.row_id,
        "quantity": one.quantity,
        "predicted": "" if one.predicted is None else f"{one.predicted:.6g}",
        "measured": f"{one.measured:.6g}",
        "skipped_because": one.skipped_because or "",
        **{name: f"{value:.6g}" for name, value in one.breakdown.items()},
        "low": "" if low is None else f"{low:.6g}",
        "high": "" if high is None else f"{high:.6g}",
        "group": group_of(one.row),
        "provenance": one.provenance or "",
        "table": Path(source).name,
        "assumptions": "; ".join(one.assumptions),
    }
