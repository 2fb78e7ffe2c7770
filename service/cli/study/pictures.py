"""Pictures of studies, in the format of the path's ending; needs matplotlib (the `plot` extra)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from automap.planner import Front
from automap.planner.simulation import HOST, Occurrence, host_lanes, rows
from automap.planner.validation import Prediction
from automap.service.cli.plan.timeline_picture import TAIL_HATCH, Bar, draw_timeline
from automap.service.cli.terminal.picture import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRONT_INCHES = (7.0, 5.0)
WIDTH_INCHES = 14.0
ROW_INCHES = 0.45
AROUND_INCHES = 1.6
"""What title, axis and legend take."""
SHOWN_ITERATIONS = 8
"""More would be too narrow to read; the Chrome trace has all."""
PANELS_PER_ROW = 3
PANEL_INCHES = 4.5
MARGIN = 0.1
"""Half-width of the band around equality."""
LEGEND_ENTRIES = 8


def draw_front(front: Front, path: str) -> None:
    """A Pareto front, seconds against price."""
    with picture(path, inches=FRONT_INCHES) as figure:
        _front_on(front, figure.add_subplot())


def _front_on(front: Front, axes: "Axes") -> None:
    seconds = [plan.iteration_seconds for plan in front.plans]
    prices = [plan.price_per_iteration for plan in front.plans]
    # Between two plans the slower one is the best there is for the money.
    axes.step(seconds, prices, where="post", color="black", linewidth=0.8)
    for optimal, marker, label in ((True, "o", "proven"), (False, "x", "not proven")):
        shown = [plan for plan in front.plans if (plan.search.status == "optimal") == optimal]
        if shown:
            axes.scatter(
                [plan.iteration_seconds for plan in shown],
                [plan.price_per_iteration for plan in shown],
                marker=marker,
                label=label,
                zorder=2,
            )
    for plan, x, y in zip(front.plans, seconds, prices, strict=True):
        axes.annotate(
            f"{plan.gpus_used} GPUs", (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8
        )
    axes.set(
        xlabel="seconds per iteration",
        ylabel="price per iteration",
        title=front.spec.name,
    )
    axes.margins(0.12)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small", loc="lower left")


def draw_simulation(timeline: Sequence[Occurrence], *, title: str, path: str) -> None:
    """The first iterations of a simulated plan, a row per stretch of GPUs."""
    from matplotlib import colormaps

    shown = [one for one in timeline if one.iteration < SHOWN_ITERATIONS]
    stretches = rows(shown)
    names = [f"{row.pool} {row.first}-{row.end - 1}" for row in stretches]
    lanes = host_lanes(shown)
    names += [HOST] * len(set(lanes.values()))
    kinds = list(dict.fromkeys(one.name for one in shown))
    palette = colormaps["tab10" if len(kinds) <= 10 else "tab20"]
    colours = {name: palette(number % palette.N) for number, name in enumerate(kinds)}
    bars = [
        Bar(
            row,
            1,
            piece.start_seconds,
            piece.end_seconds,
            colours[one.name],
            # Iterations beside one another differ in shade.
            alpha=1.0 if one.iteration % 2 == 0 else 0.6,
            hatch=TAIL_HATCH if piece is one.tail else None,
        )
        for one in shown
        for row, with_tail in one.places(stretches)
        or [(len(stretches) + lanes.get((one.name, one.iteration), 0), True)]
        for piece in one.pieces(with_tail=with_tail)
    ]
    tails = dict.fromkeys(one.tail.name for one in shown if one.tail is not None)
    with picture(path, inches=(WIDTH_INCHES, ROW_INCHES * len(names) + AROUND_INCHES)) as figure:
        draw_timeline(
            figure, rows=names, bars=bars, title=title, legend=colours, hatched=", ".join(tails)
        )


def draw_validation(predictions: Sequence[Prediction], path: str) -> None:
    """Predicted against measured, a panel per quantity."""
    panels: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for one in predictions:
        if one.relative_error is not None:
            panels[one.row.kind, one.quantity].append(one)
    columns = min(PANELS_PER_ROW, max(len(panels), 1))
    lines = max(-(-len(panels) // columns), 1)
    with picture(path, inches=(PANEL_INCHES * columns, PANEL_INCHES * lines)) as figure:
        for number, ((kind, quantity), group) in enumerate(sorted(panels.items()), start=1):
            _panel(figure.add_subplot(lines, columns, number), f"{kind}: {quantity}", group)


def _panel(axes: "Axes", title: str, group: Sequence[Prediction]) -> None:
    by_gpu: dict[str, list[Prediction]] = defaultdict(list)
    for one in group:
        by_gpu[one.row.gpu_type].append(one)
    measured = [one.measured for one in group]
    low, high = min(measured) / 1.5, max(measured) * 1.5
    axes.set(xscale="log", yscale="log", xlabel="measured", ylabel="predicted", title=title)
    axes.plot([low, high], [low, high], color="black", linewidth=0.8)
    axes.fill_between(
        [low, high],
        [low * (1 - MARGIN), high * (1 - MARGIN)],
        [low * (1 + MARGIN), high * (1 + MARGIN)],
        color="black",
        alpha=0.1,
        linewidth=0,
    )
    for gpu, points in sorted(by_gpu.items()):
        axes.scatter(
            [one.measured for one in points],
            [one.predicted for one in points],
            s=8,
            alpha=0.6,
            label=gpu,
        )
    if len(by_gpu) <= LEGEND_ENTRIES:
        axes.legend(fontsize="x-small")
