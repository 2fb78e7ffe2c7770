"""Results that go to files: whether they can, before the work, and writing them after it."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from automap.service.cli.terminal.failures import BadInputError


def need_folder(output: str | None) -> None:
    """Say so before the search, not after it, when its result could not be written."""
    if output is not None and not Path(output).parent.is_dir():
        raise BadInputError(f"cannot write {output}: there is no folder {Path(output).parent}")


def need_no_file(folder: Path) -> None:
    """Say before the work that a folder of this name cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"cannot write to {folder}: it is a file; name a folder")


def make_folder(folder: Path) -> None:
    """The folder that results go to, where there is none yet, with those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"cannot make {folder}: {error.strerror or error}") from None


def write_whole(path: str, text: str, *, like: str) -> None:
    """Write a file that is there as a whole or not at all, readable and run by whom `like` is."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe, or a device
        write_file(path, text.removesuffix("\n"))
        return
    try:
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, delete=False) as draft:
            draft.write(text.encode())
        try:
            with suppress(FileNotFoundError):
                shutil.copymode(target if target.exists() else like, draft.name)
            Path(draft.name).replace(target)
        except OSError:
            Path(draft.name).unlink()
            raise
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None


def write_file(path: str | None, text: str) -> None:
    """Write a result where a file is named for it."""
    if path is None:
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from None
