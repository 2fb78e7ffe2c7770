"""Results that go to files: whether they can, before the work, and writing them after it."""

from importlib import util
from pathlib import Path

from automap.service.cli.terminal.failures import BadInputError

PICTURES = (".png", ".svg", ".pdf")


def need_folder(output: str | None) -> None:
    """Say so before the search, not after it, when its result could not be written."""
    if output is not None and not Path(output).parent.is_dir():
        raise BadInputError(f"cannot write {output}: there is no folder {Path(output).parent}")


def need_picture(path: str | None, *, option: str = "--picture") -> None:
    """Say so before the work when its picture could not be drawn."""
    if path is None:
        return
    need_folder(path)
    if Path(path).suffix.lower() not in PICTURES:
        raise BadInputError(f"{option}: {path} does not end in {', '.join(PICTURES)}")
    if util.find_spec("matplotlib") is None:
        raise BadInputError(
            f"{option} needs matplotlib, which is not installed",
            [f"pip install 'automap[plot]' (in a checkout: '.[plot]'), or leave {option} out"],
        )


def write_file(path: str | None, text: str) -> None:
    """Write a result where a file is named for it."""
    if path is None:
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None
