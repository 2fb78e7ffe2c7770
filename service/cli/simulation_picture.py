"""A simulated plan's timeline, a row per stretch of GPUs; needs matplotlib (the `plot` extra)."""

from collections.abc import Sequence

from planner.simulation.chrome_trace import HOST
from planner.simulation.report import Occurrence, stretches
from service.cli.failures import BadInputError

WIDTH_INCHES = 14.0
ROW_INCHES = 0.45
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
    rows = stretches([span for one in shown for span in one.spans])
    names = [f"{row.pool} {row.first}-{row.end - 1}" for row in rows]
    if any(not one.spans for one in shown):
        names.append(HOST)
    palette = colormaps["tab20"]
    kinds = list(dict.fromkeys(one.name for one in shown))
    colours = {name: palette(number % palette.N) for number, name in enumerate(kinds)}
    height = ROW_INCHES * len(names) + 1.6
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for one in shown:
        here = [
            place
            for place, row in enumerate(rows)
            if any(row.shares_gpus(span) for span in one.spans)
        ]
        axes.barh(
            here or [len(names) - 1],
            one.end_seconds - one.start_seconds,
            left=one.start_seconds,
            height=0.8,
            color=colours[one.name],
            # Iterations beside one another differ in shade.
            alpha=1.0 if one.iteration % 2 == 0 else 0.6,
            edgecolor="white",
            linewidth=0.4,
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title=title)
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize="small")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot write {path}: {error}") from None
