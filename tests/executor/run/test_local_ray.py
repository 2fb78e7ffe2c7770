"""A Ray that does not start in its own time, as happens on a busy machine, is started again."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import ray

from automap.executor.run.local_ray import STARTS, start_ray

LATE = "The current node timed out during startup."


class Starts:
    """In place of Ray's: each leaves a process, and all but the last few fail."""

    def __init__(self, fails: int, message: str) -> None:
        self.fails, self.message = fails, message
        self.processes: list[subprocess.Popen[bytes]] = []
        self.options: list[dict[str, object]] = []

    def __call__(self, **options: object) -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
        self.processes.append(subprocess.Popen(sleep))
        self.options.append(options)
        if len(self.processes) <= self.fails:
            raise Exception(self.message)  # as Ray does

    def ended(self) -> list[bool]:
        return [each.poll() is not None for each in self.processes]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], Starts]:
    def make(fails: int, message: str = LATE) -> Starts:
        made = Starts(fails, message)
        monkeypatch.setattr(ray, "init", made)
        return made

    return make


def test_one_that_is_late_is_ended_and_started_again(
    starts: Callable[[int, str], Starts],
) -> None:
    own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        made = starts(STARTS - 1, LATE)
        start_ray(num_cpus=3)
        assert made.ended() == [True] * (STARTS - 1) + [False]
        assert {each["num_cpus"] for each in made.options} == {3}
        assert own.poll() is None, "it was there before"
    finally:
        own.kill()
        made.processes[-1].kill()


@pytest.mark.parametrize(("message", "tried"), [(LATE, STARTS), ("no such option", 1)])
def test_one_that_cannot_start_says_why_and_leaves_nothing(
    starts: Callable[[int, str], Starts], message: str, tried: int
) -> None:
    made = starts(STARTS, message)
    with pytest.raises(Exception, match=message):
        start_ray()
    assert made.ended() == [True] * tried
