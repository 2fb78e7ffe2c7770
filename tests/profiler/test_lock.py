"""One profile at a time on a device."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from automap.profiler.errors import ProfileError
from automap.profiler.machine.lock import device_lock, folder_lock

HOLD = (
    "import sys; from pathlib import Path; from automap.profiler.machine.lock import device_lock\n"
    "with device_lock(['cpu'], folder=Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


def test_a_second_profile_is_refused_until_the_first_is_over_even_if_it_was_killed(
    tmp_path: Path,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with (
        pytest.raises(ProfileError, match="another profile is being measured on cpu"),
        device_lock(["cpu"], folder=tmp_path),
    ):
        pass
    with device_lock(["GPU-1"], folder=tmp_path):
        pass
    holder.kill()
    holder.wait()
    with device_lock(["cpu"], folder=tmp_path):
        pass


def test_who_has_temporary_files_of_its_own_can_share_the_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    own.mkdir()
    monkeypatch.setenv("AUTOMAP_LOCK_FOLDER", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    with (
        device_lock(["cpu"], folder=shared),
        pytest.raises(ProfileError, match="another profile"),
        device_lock(["cpu"]),
    ):
        pass
    assert list(own.iterdir()) == []


def test_a_lock_is_everybodys_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with device_lock(["cpu"], folder=tmp_path):
            pass
    finally:
        os.umask(before)
    (lock,) = tmp_path.iterdir()
    assert lock.stat().st_mode & 0o777 == 0o644


def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "automap-profile-cpu.lock").symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(ProfileError, match=r"cannot open the lock .*automap-profile-cpu\.lock"),
        device_lock(["cpu"], folder=tmp_path),
    ):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_takes_one_profile_at_a_time(tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path),
        pytest.raises(ProfileError, match="another profile is being measured into"),
        folder_lock(tmp_path),
    ):
        pass
