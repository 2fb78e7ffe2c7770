"""A simulated plan's timeline, a row per stretch of GPUs; needs matplotlib (the `plot` extra)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from automap.planner.simulation.chrome_trace import HOST
from automap.planner.simulation.timeline import Occurrence, Piece, host_lanes, rows
from automap.service.cli.terminal.failures import BadInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES = 14.0
ROW_INCHES = 0.45
HATCH = "///"
"""Of tails."""
SHOWN_ITERATIONS = 8
"""More would be too narrow to read; the Chrome trace has all."""


def draw(timeline: Sequence[Occurrence], *, title: str, path: str) -> None:
    """Write a picture of the first iterations in the format of the path's ending."""
    # Agg draws without a display.
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = [one for one in timeline if one.iteration < SHOWN_ITERATIONS]
    stretches = rows(shown)
    names = [f"{row.pool} {row.first}-{row.end - 1}" for row in stretches]
    lanes = host_lanes(shown)
    names += [HOST] * len(set(lanes.values()))
    kinds = list(dict.fromkeys(one.name for one in shown))
    palette = colormaps["tab10" if len(kinds) <= 10 else "tab20"]
    colours = {name: palette(number % palette.N) for number, name in enumerate(kinds)}
    height = ROW_INCHES * len(names) + 1.6
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for one in shown:
        lane = len(stretches) + lanes.get((one.name, one.iteration), 0)
        for row, with_tail in one.places(stretches) or [(lane, True)]:
            _bars(axes, row, one, one.pieces(with_tail=with_tail), colours[one.name])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title=title)
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    labels = dict.fromkeys(one.tail.name for one in shown if one.tail is not None)
    if labels:
        handles.append(Patch(facecolor="white", hatch=HATCH, label=", ".join(labels)))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize="small")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot write {path}: {error}") from None


def _bars(
    axes: "Axes",
    row: int,
    one: Occurrence,
    pieces: Sequence[Piece],
    colour: tuple[float, ...],
) -> None:
    """A bar for each part of an event on a row."""
    for piece in pieces:
        axes.barh(
            row,
            piece.end_seconds - piece.start_seconds,
            left=piece.start_seconds,
            height=0.8,
            color=colour,
            # Iterations beside one another differ in shade.
            alpha=1.0 if one.iteration % 2 == 0 else 0.6,
            edgecolor="white",
            linewidth=0.4,
            hatch=HATCH if piece is one.tail else None,
        )
