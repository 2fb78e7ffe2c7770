"""One profile at a time on a device."""

import subprocess
import sys
from pathlib import Path

import pytest

from profiler.errors import ProfileError
from profiler.lock import device_lock

HOLD = (
    "import sys; from pathlib import Path; from profiler.lock import device_lock\n"
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
