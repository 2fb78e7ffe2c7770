"""What measuring processes leave behind when they do not end well."""

import time
from pathlib import Path

import pytest

from automap.profiler.errors import ProfileError
from automap.profiler.machine.background_load import MOST, busy_cores
from automap.profiler.machine.devices import choose_device
from automap.profiler.measure.child_processes import reported_by


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    (folder / "measuring.py").write_text("import os, sys\nrank = os.environ['RANK']\n" + text)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "measuring"


def test_half_a_line_of_a_process_that_was_killed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "print('{\"number\": 1}\\n{\"num', end='', flush=True)\nos.kill(os.getpid(), 9)\n"
    reported = reported_by(
        program(tmp_path, monkeypatch, text), {}, ranks=1, deadline=time.monotonic() + 60
    )
    assert next(reported) == {"number": 1}
    with pytest.raises(ProfileError, match="process 0 of 1 ended with code -9"):
        next(reported)


def test_what_another_process_than_the_first_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "if rank == '1':\n    sys.exit('no such device')\n"
    reported = reported_by(
        program(tmp_path, monkeypatch, text), {}, ranks=2, deadline=time.monotonic() + 60
    )
    with pytest.raises(ProfileError, match="process 1 of 2 ended with code 1") as failed:
        list(reported)
    assert failed.value.lines == ["no such device"]


@pytest.mark.slow
def test_background_load_pauses_goes_on_and_ends() -> None:
    device = choose_device("cpu")
    with busy_cores(device, budget_seconds=60.0) as others:
        assert len(others._processes) == min(device.count - 1, MOST)
        others.pause()
        others.resume()
        assert all(process.poll() is None for process in others._processes)
    assert all(process.poll() is not None for process in others._processes)
    with busy_cores(device, budget_seconds=1.0) as others:
        assert others._processes == []
