"""What runs write is its user's alone; what was there keeps its mode."""

from pathlib import Path
from threading import Event

import pytest

from automap.executor.private_folders import is_open_to_all, make_private
from automap.executor.run.__main__ import _folder
from automap.executor.telemetry.events import Events


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_folders_that_are_made_are_private(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    make_private(shared / "runs" / "one")
    assert [mode(shared / "runs"), mode(shared / "runs" / "one")] == [0o700, 0o700]
    make_private(shared)
    assert mode(shared) == 0o775
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")


def test_the_folder_of_a_run_is_private(tmp_path: Path) -> None:
    with _folder(tmp_path / "runs" / "one", Events(), Event()):
        assert [mode(tmp_path / "runs"), mode(tmp_path / "runs" / "one")] == [0o700, 0o700]


def test_what_nobody_can_reach_is_not_open(tmp_path: Path) -> None:
    assert is_open_to_all(Path("/etc/passwd"))
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "file").touch()
    (closed / "file").chmod(0o644)
    closed.chmod(0o700)
    assert not is_open_to_all(closed / "file")
    assert not is_open_to_all(closed / "nothing")
