"""Results that go to files: whether they can, before the work, and writing them after it."""

from pathlib import Path

from automap.service.cli.terminal.failures import BadInputError


def need_folder(output: str | None) -> None:
    """Say so before the search, not after it, when its result could not be written."""
    if output is not None and not Path(output).parent.is_dir():
        raise BadInputError(f"cannot write {output}: there is no folder {Path(output).parent}")


def write_file(path: str | None, text: str) -> None:
    """Write a result where a file is named for it."""
    if path is None:
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None
