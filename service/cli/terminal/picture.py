"""Pictures of results; drawing needs matplotlib (the `plot` extra)."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.files import need_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 120


def need_picture(path: str | None, *, option: str = "--picture") -> None:
    """Say so before the work when its picture could not be drawn.

    Raises:
        BadInputError: the folder, the format or matplotlib is missing.
    """
    if path is None:
        return
    need_folder(path)
    if Path(path).suffix.lower() not in ENDINGS:
        raise BadInputError(f"{option}: {path} does not end in {', '.join(ENDINGS)}")
    if util.find_spec("matplotlib") is None:
        raise BadInputError(
            f"{option} needs matplotlib, which is not installed",
            [f"pip install matplotlib, or leave {option} out"],
        )


@contextmanager
def picture(path: str, *, inches: tuple[float, float]) -> "Iterator[Figure]":
    """A figure to draw on, written in the format of the path's ending when the block ends.

    Drawn again, the same figure gives the same bytes.

    Raises:
        BadInputError: the file cannot be written.
    """
    # Agg draws without a display.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    undated = {".png": None, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    try:
        with rc_context({"svg.hashsalt": "automap"}):
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata=undated[Path(path).suffix.lower()])
    except (OSError, ValueError) as error:
        raise BadInputError(f"cannot write {path}: {error}") from None
