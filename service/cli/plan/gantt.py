"""The iteration as text: GPUs down, time across, one labelled block per call."""

import itertools
import math
from dataclasses import dataclass

from rich.text import Text

from automap.planner import Plan
from automap.service.cli.plan.timeline import Event, GpuRange, Row, events_of, rows_of
from automap.service.cli.terminal import formats

ROLE_STYLES = (
    "black on cyan",
    "black on yellow",
    "black on green",
    "black on magenta",
    "white on blue",
    "white on red",
)
SYNC_STYLE = "black on white"
MIN_CHART_WIDTH = 20
MIN_LABEL_WIDTH = 8
"""A narrower block shows its key alone; in a wider one a name that does not fit is cut."""
TICK_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that the chart is drawn with."""

    fill: str
    separator: str
    idle: str
    axis: str
    tick: str


UNICODE_MARKS = Marks(fill="─", separator="│", idle="·", axis="─", tick="┴")
ASCII_MARKS = Marks(fill="=", separator="|", idle=".", axis="-", tick="+")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The columns that a block takes: left up to, but without, right."""

    left: int
    right: int
    event: Event
    continues: bool
    """True for the part of a wrapped block that began in the period before."""


def gantt(plan: Plan, *, width: int, unicode: bool = True) -> Text:
    """The chart, `width` columns wide: a line per row of GPUs, their busy share, a time axis."""
    marks = UNICODE_MARKS if unicode else ASCII_MARKS
    events = events_of(plan)
    rows = rows_of(events)
    styles = _role_styles(events)
    labels = [_row_label(row.gpus) for row in rows]
    margin = max(len(label) for label in labels) + 1
    # A wrapped block has two pieces, and every piece needs a column.
    least = max(MIN_CHART_WIDTH, *(2 * len(row.events) for row in rows))
    columns = max(least, width - margin - len(" 100% busy"))
    chart = Text(no_wrap=True)
    for label, row in zip(labels, rows, strict=True):
        chart.append(label.ljust(margin))
        chart.append_text(_row_text(row, plan.iteration_seconds, columns, marks, styles))
        chart.append(f" {formats.percent(row.busy_seconds() / plan.iteration_seconds):>4} busy\n")
    for line in _axis(plan.iteration_seconds, columns, marks):
        chart.append(" " * margin + line + "\n", style="dim")
    chart.rstrip()
    return chart


def _row_label(gpus: GpuRange | None) -> str:
    if gpus is None:
        return "host"
    return formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)


def _role_styles(events: list[Event]) -> dict[str, str]:
    roles = dict.fromkeys(event.role for event in events)
    return dict(zip(roles, itertools.cycle(ROLE_STYLES), strict=False))


def _row_text(
    row: Row, period_seconds: float, columns: int, marks: Marks, styles: dict[str, str]
) -> Text:
    text = Text()
    column = 0
    for cells in _place(row.events, period_seconds, columns):
        text.append(marks.idle * (cells.left - column), style="dim")
        style = SYNC_STYLE if cells.event.sync else styles[cells.event.role]
        text.append(_block(cells, marks), style=style)
        column = cells.right
    text.append(marks.idle * (columns - column), style="dim")
    return text


def _block(cells: _Cells, marks: Marks) -> str:
    """A separator, the key and as much of the name as fits; one column shows the key alone."""
    width = cells.right - cells.left
    if width == 1:
        return cells.event.key
    lead = marks.fill if cells.continues else marks.separator
    label = f"{cells.event.key} {cells.event.name} "
    label = label[: width - 1] if width > MIN_LABEL_WIDTH else cells.event.key
    return (lead + label).ljust(width, marks.fill)


def _place(events: tuple[Event, ...], period_seconds: float, columns: int) -> list[_Cells]:
    """Columns for each block in time order; even the shortest gets one, at a neighbour's cost."""
    pieces = sorted(
        ((piece, event) for event in events for piece in event.within(period_seconds)),
        key=lambda each: each[0].start_seconds,
    )
    lefts: list[int] = []
    for index, (piece, _event) in enumerate(pieces):
        last = columns - (len(pieces) - index)  # leaves a column for each of those that follow
        after_previous = lefts[-1] + 1 if lefts else 0
        lefts.append(
            max(after_previous, min(round(piece.start_seconds / period_seconds * columns), last))
        )
    placed = []
    for (piece, event), left, limit in zip(pieces, lefts, [*lefts[1:], columns], strict=True):
        right = min(max(left + 1, round(piece.end_seconds / period_seconds * columns)), limit)
        placed.append(_Cells(left, right, event, piece.continues))
    return placed


def _axis(period_seconds: float, columns: int, marks: Marks) -> tuple[str, str]:
    """A ruler and its numbers, in seconds, with round steps; the end carries the iteration time."""
    step = _round_step(period_seconds * TICK_COLUMNS / columns)
    ruler = [marks.axis] * columns
    numbers = [" "] * (columns + len(" 100% busy"))
    end_label = f"{formats.seconds(period_seconds)} s"
    end_column = columns - 1
    for index in range(math.ceil(period_seconds / step)):
        column = round(index * step / period_seconds * columns)
        label = f"{index * step:g}"
        if column + len(label) + 1 < end_column:
            ruler[column] = marks.tick
            numbers[column : column + len(label)] = label
    ruler[end_column] = marks.tick
    numbers[end_column : end_column + len(end_label)] = end_label
    return "".join(ruler), "".join(numbers).rstrip()


def _round_step(at_least: float) -> float:
    """The smallest of 1, 2, 5 × a power of ten that is no smaller."""
    power = 10.0 ** math.floor(math.log10(at_least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= at_least * 0.999)
