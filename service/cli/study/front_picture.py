"""A Pareto front as a picture, seconds against price; needs matplotlib (the `plot` extra)."""

from typing import TYPE_CHECKING

from automap.planner import Front
from automap.service.cli.terminal.picture import picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (7.0, 5.0)


def plot(front: Front, path: str) -> None:
    """Write a picture in the format of the path's ending."""
    with picture(path, inches=INCHES) as figure:
        _draw(front, figure.add_subplot())


def _draw(front: Front, axes: "Axes") -> None:
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
