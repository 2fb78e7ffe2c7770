"""What forks planner processes may be ended or stopped, and another takes its place."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from automap.service.planners import fork_server, forking
from automap.service.planners.fork_server import ForkedProcess, ForkServer
from automap.service.planners.messages import Setup
from tests.service.support.processes import running
from tests.service.support.workers import eventually


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.stop()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(profiles_folder=tmp_path, memory_bytes=2**33, environment={"LANG": "C"})


def begun(process: ForkedProcess) -> int:
    eventually(lambda: process.pid is not None)
    assert process.pid is not None
    return process.pid


def test_to_fork_takes_a_fraction_of_an_import(server: ForkServer, setup: Setup) -> None:
    started = time.perf_counter()
    begun(server.fork(setup))
    first = time.perf_counter() - started
    started = time.perf_counter()
    again = [server.fork(setup) for _ in range(4)]
    pids = {begun(process) for process in again}
    assert len(pids) == 4
    assert time.perf_counter() - started < first / 2


def test_a_process_answers_until_its_input_closes(server: ForkServer, setup: Setup) -> None:
    process = server.fork(setup)
    process.stdin.write(b"nothing that can be read\n")
    process.stdin.flush()
    assert b"ValidationError" in process.stdout.readline()
    process.close()
    eventually(lambda: process.has_ended)
    assert process.returncode == 0


def test_a_process_that_is_killed_says_how_it_ended(server: ForkServer, setup: Setup) -> None:
    process = server.fork(setup)
    os.kill(begun(process), signal.SIGTERM)
    eventually(lambda: process.has_ended)
    assert process.returncode == -signal.SIGTERM


def test_what_has_not_begun_ends_when_it_begins(server: ForkServer, setup: Setup) -> None:
    process = server.fork(setup)
    assert process.pid is None  # the server is importing
    process.kill()
    eventually(lambda: process.has_ended)
    assert process.returncode == 0


def test_processes_end_with_their_server_and_the_next_has_another(
    server: ForkServer, setup: Setup
) -> None:
    process = server.fork(setup)
    pid, parent = begun(process), server.pid
    assert parent is not None
    os.kill(parent, signal.SIGKILL)
    eventually(lambda: process.has_ended)
    assert not running(pid)
    assert process.returncode is None
    following = server.fork(setup)
    assert begun(following) != pid
    assert server.pid != parent
    following.kill()
    assert following.returncode == -signal.SIGKILL


def test_a_server_that_is_stuck_is_replaced(
    server: ForkServer, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(server.fork(setup))
    parent = server.pid
    assert parent is not None
    os.kill(parent, signal.SIGSTOP)
    stuck = server.fork(setup)
    time.sleep(0.1)
    assert stuck.pid is None
    monkeypatch.setattr(fork_server, "_STUCK_SECONDS", 0.05)
    assert begun(server.fork(setup))
    assert server.pid != parent
    assert stuck.has_ended


def test_ends_are_noticed_whichever_process_ends_first(server: ForkServer, setup: Setup) -> None:
    processes = [server.fork(setup) for _ in range(6)]
    for process in processes[::2]:
        os.kill(begun(process), signal.SIGKILL)
    eventually(lambda: all(process.has_ended for process in processes[::2]))
    assert not any(process.has_ended for process in processes[1::2])
    for process in processes[1::2]:
        process.close()
    eventually(lambda: all(process.has_ended for process in processes))
    assert {process.returncode for process in processes} == {0, -signal.SIGKILL}


def test_an_end_that_is_told_while_another_is_reported_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A signal's handler may run within itself, between any two of its steps."""
    ends = {pid: os.pipe() for pid in (11, 12)}
    statuses = {pid: write for pid, (_, write) in ends.items()}
    ended, signals = [(11, 0), (12, 0)], [True]

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        if signals:
            signals.pop()
            forking._report_ends(statuses)
        if not ended:
            raise ChildProcessError
        return ended.pop()

    monkeypatch.setattr(os, "waitpid", waitpid)
    forking._report_ends(statuses)
    assert statuses == {}
    for read, _ in ends.values():
        assert os.read(read, 64) == b"0\n"
        os.close(read)
