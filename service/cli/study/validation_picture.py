"""Predicted against measured, a panel per quantity; needs matplotlib (the `plot` extra)."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from automap.planner.validation import Prediction
from automap.service.cli.terminal.picture import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_PER_ROW = 3
PANEL_INCHES = 4.5
MARGIN = 0.1
"""Half-width of the band around equality."""
LEGEND_ENTRIES = 8


def plot(predictions: Sequence[Prediction], path: str) -> None:
    """Write a picture in the format of the path's ending."""
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
