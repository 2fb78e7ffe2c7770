"""Bars over rows of GPUs: the picture of a plan, and of a simulated run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automap.planner import Plan
from automap.service.cli.plan.timeline import Event, Row, events_of, rows_of
from automap.service.cli.terminal import formats
from automap.service.cli.terminal.picture import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAN_INCHES = 9.5
"""Wide enough for a page of 900 pixels."""
CHART_INCHES = 7.6
"""What of it bars have: the rest is for the names of the rows and how busy they are."""
ROW_INCHES = 0.72
GAP = 0.14
"""Between rows, as a share of a row."""
AROUND_INCHES = 1.5
"""What title, axis and legend take."""
FONT_POINTS = 9.5
CHARACTER_INCHES = 0.57 * FONT_POINTS / 72
LINE_INCHES = 1.5 * FONT_POINTS / 72
ROLE_COLOURS = ("#8ec1e8", "#f7c578", "#a9d8a0", "#dab0e6", "#f4a9a3", "#b9c4cf", "#e5dc8a")
SYNC_COLOUR = "#5a6570"
IDLE_COLOUR = "#f1f3f5"
TAIL_HATCH = "///"


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that runs on neighbouring rows; its label is shown where there is room."""

    first_row: int
    num_rows: int
    start_seconds: float
    end_seconds: float
    colour: str | tuple[float, ...]
    label: str = ""
    alpha: float = 1.0
    hatch: str | None = None


def draw_timeline(
    figure: "Figure",
    *,
    rows: Sequence[str],
    bars: Sequence[Bar],
    title: str,
    legend: Mapping[str, str | tuple[float, ...]],
    hatched: str = "",
) -> "Axes":
    """Bars over rows, time from left to right; `hatched` names what hatches mean."""
    from matplotlib.patches import Patch

    axes = figure.add_subplot()
    for bar in bars:
        axes.barh(
            bar.first_row + (bar.num_rows - 1) / 2,
            bar.end_seconds - bar.start_seconds,
            left=bar.start_seconds,
            height=bar.num_rows - GAP,
            color=bar.colour,
            alpha=bar.alpha,
            hatch=bar.hatch,
            edgecolor="white",
            linewidth=0.6,
        )
    axes.set_yticks(range(len(rows)), rows, fontsize=FONT_POINTS)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlabel("seconds")
    axes.set_title(title, loc="left", fontsize=11)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = [Patch(color=colour, label=name) for name, colour in legend.items()]
    if hatched:
        handles.append(Patch(facecolor="white", hatch=TAIL_HATCH, label=hatched))
    columns = min(len(handles), 6)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize="small")
    return axes


def draw_plan(plan: Plan, path: str, *, title: str) -> None:
    """Write a picture of one iteration, or of one period of a schedule that repeats."""
    events = events_of(plan)
    rows = rows_of(events)
    colours = _colours(events)
    bars = [bar for event in events for bar in _bars(event, rows, plan.iteration_seconds, colours)]
    legend: dict[str, str | tuple[float, ...]] = {**colours}
    if any(event.sync is not None for event in events):
        legend["weight sync"] = SYNC_COLOUR
    inches = (PLAN_INCHES, ROW_INCHES * max(len(rows), 2) + AROUND_INCHES)
    with picture(path, inches=inches) as figure:
        axes = draw_timeline(
            figure,
            rows=[_row_name(row) for row in rows],
            bars=bars,
            title=title,
            legend=legend,
        )
        axes.barh(
            range(len(rows)), plan.iteration_seconds, height=1 - GAP, color=IDLE_COLOUR, zorder=0
        )
        axes.set_xlim(0, plan.iteration_seconds)
        _label(axes, bars, plan.iteration_seconds)
        _busy(axes, rows, plan.iteration_seconds)


def _colours(events: Sequence[Event]) -> dict[str, str]:
    """A colour for each role, in the order in which they begin."""
    roles = dict.fromkeys(event.role for event in events)
    return {role: ROLE_COLOURS[number % len(ROLE_COLOURS)] for number, role in enumerate(roles)}


def _row_name(row: Row) -> str:
    if row.gpus is None:
        return "host"
    gpus = row.gpus
    name = formats.gpu_range(gpus.pool, first_gpu=gpus.first_gpu, num_gpus=gpus.num_gpus)
    return f"{name}\n{formats.number_of(gpus.num_gpus, 'GPU')}"


def _bars(
    event: Event, rows: Sequence[Row], period_seconds: float, colours: Mapping[str, str]
) -> list[Bar]:
    """The bars of an event: one for neighbouring rows on which it takes equally long."""
    bars: list[Bar] = []
    for number, row in enumerate(rows):
        here = next((each for each in row.events if each.key == event.key), None)
        if here is None:
            continue
        before = rows[number - 1] if number else None
        joins = (
            before is not None
            and before.gpus is not None
            and row.gpus is not None
            and before.gpus.pool == row.gpus.pool
        )
        for piece in here.within(period_seconds):
            bar = Bar(
                number,
                1,
                piece.start_seconds,
                piece.end_seconds,
                SYNC_COLOUR if event.sync else colours[event.role],
                "" if event.sync else _text(here),
            )
            _add(bars, bar, joins=joins)
    return bars


def _add(bars: list[Bar], bar: Bar, *, joins: bool) -> None:
    """Add a bar, joined to the equal one on the row above where there is one."""
    for number, above in enumerate(bars):
        touches = above.first_row + above.num_rows == bar.first_row
        spans = (above.start_seconds, above.end_seconds) == (bar.start_seconds, bar.end_seconds)
        if joins and touches and spans:
            bars[number] = Bar(
                above.first_row,
                above.num_rows + 1,
                bar.start_seconds,
                bar.end_seconds,
                bar.colour,
                bar.label,
            )
            return
    bars.append(bar)


def _text(event: Event) -> str:
    """Name, layout and seconds, a line each."""
    call = event.call
    layout = call.parallelism if call is not None and call.copy_id else None
    lines = [event.name, layout.in_short() if layout else ""]
    lines.append(f"{formats.seconds(event.duration_seconds)} s")
    return "\n".join(line for line in lines if line)


def _label(axes: "Axes", bars: Sequence[Bar], period_seconds: float) -> None:
    """What each bar is, as far as it has room."""
    for bar in bars:
        wide = (bar.end_seconds - bar.start_seconds) / period_seconds * CHART_INCHES
        text, upright = _fitting(bar.label, wide=wide, high=(bar.num_rows - GAP) * ROW_INCHES)
        axes.text(
            (bar.start_seconds + bar.end_seconds) / 2,
            bar.first_row + (bar.num_rows - 1) / 2,
            text,
            ha="center",
            va="center",
            rotation=90 if upright else 0,
            fontsize=FONT_POINTS,
        )


def _fitting(label: str, *, wide: float, high: float) -> tuple[str, bool]:
    """The lines of a label that fit into so many inches, and whether they are turned upright.

    Where the name does not fit across, it is broken at its dot, then turned, then left out.
    """
    name, *details = label.splitlines() or [""]
    details = [line for line in details if len(line) * CHARACTER_INCHES <= wide]
    for head in ([name], name.split(".")):
        lines = [*head, *details][: int(high / LINE_INCHES)]
        if len(lines) >= len(head) and max(map(len, head)) * CHARACTER_INCHES <= wide:
            return "\n".join(lines), False
    fits = wide >= LINE_INCHES and len(name) * CHARACTER_INCHES <= high
    return name if fits else "", True


def _busy(axes: "Axes", rows: Sequence[Row], period_seconds: float) -> None:
    """The share of the time in which each row works, at its right end."""
    for number, row in enumerate(rows):
        axes.annotate(
            f"{formats.percent(row.busy_seconds() / period_seconds)} busy",
            (1, number),
            xycoords=axes.get_yaxis_transform(),
            textcoords="offset points",
            xytext=(4, 0),
            va="center",
            fontsize=FONT_POINTS - 1,
            color=SYNC_COLOUR,
        )
