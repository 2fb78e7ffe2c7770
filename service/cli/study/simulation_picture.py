"""A simulated plan's timeline, a row per stretch of GPUs; needs matplotlib (the `plot` extra)."""

from collections.abc import Sequence

from automap.planner.simulation import HOST, Occurrence, host_lanes, rows
from automap.service.cli.plan.timeline_picture import TAIL_HATCH, Bar, draw_timeline
from automap.service.cli.terminal.picture import picture

WIDTH_INCHES = 14.0
ROW_INCHES = 0.45
AROUND_INCHES = 1.6
"""What title, axis and legend take."""
SHOWN_ITERATIONS = 8
"""More would be too narrow to read; the Chrome trace has all."""


def draw(timeline: Sequence[Occurrence], *, title: str, path: str) -> None:
    """Write a picture of the first iterations in the format of the path's ending."""
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
