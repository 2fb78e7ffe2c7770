"""The faults: what each does to the service, and whether it can be done to this one."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.chaos.processes import Kept
from benchmarks.chaos.stack import Stack
from tests.service.support.processes import descendants, running

FULL_SECONDS = 4.0
WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    strike: Callable[[Stack, random.Random], bool]
    """Do it, and undo what it would not recover from; False: there was nothing to do it to."""


def _kill(kept: list[Kept], stack: Stack, draw: random.Random) -> bool:
    victim = draw.choice(kept)
    victim.send(signal.SIGKILL)
    # Mostly at once, as a supervisor does; else the others have to do without it for a while.
    time.sleep(draw.choice((0.0, 0.0, 1.5 * stack.options.lease_seconds)))
    victim.keep()
    return True


def kill_api(stack: Stack, draw: random.Random) -> bool:
    return _kill(stack.apis, stack, draw)


def kill_worker(stack: Stack, draw: random.Random) -> bool:
    return _kill(stack.workers, stack, draw)


def kill_planner(stack: Stack, draw: random.Random) -> bool:
    return _send_to(stack.planners(), signal.SIGKILL, draw)


def kill_run(stack: Stack, draw: random.Random) -> bool:
    return _send_to(_runs(stack), signal.SIGKILL, draw)


def kill_ray(stack: Stack, draw: random.Random) -> bool:
    if stack.head is not None:
        return _kill([stack.head], stack, draw)
    return _send_to(list(stack.ray_processes(b"gcs_server")), signal.SIGKILL, draw)


def kill_database(stack: Stack, draw: random.Random) -> bool:
    if not stack.database.can_be_killed:
        return False
    stack.database.kill()
    time.sleep(draw.choice((0.0, 1.0)))
    stack.database.keep()
    return True


def stop_api(stack: Stack, draw: random.Random) -> bool:
    return _stop_for_a_while(draw.choice(stack.apis).pid, stack)


def stop_worker(stack: Stack, draw: random.Random) -> bool:
    return _stop_for_a_while(draw.choice(stack.workers).pid, stack)


def stop_planner(stack: Stack, draw: random.Random) -> bool:
    planners = stack.planners()
    return bool(planners) and _stop_for_a_while(draw.choice(planners), stack)


def stop_run(stack: Stack, draw: random.Random) -> bool:
    runs = _runs(stack)
    return bool(runs) and _stop_for_a_while(draw.choice(runs), stack)


def lose_database(stack: Stack, draw: random.Random) -> bool:
    stack.database.away(stack.options.away_seconds)
    return True


def fill_disk(stack: Stack, draw: random.Random) -> bool:
    processes = [each.pid for each in stack.kept]
    stack.disk.be_full(processes, FULL_SECONDS)
    return True


def _send_to(processes: list[int], number: signal.Signals, draw: random.Random) -> bool:
    if not processes:
        return False
    try:
        os.kill(draw.choice(processes), number)
    except ProcessLookupError:
        return False
    return True


def _stop_for_a_while(process: int, stack: Stack) -> bool:
    try:
        os.kill(process, signal.SIGSTOP)
        time.sleep(2 * stack.options.lease_seconds)
        os.kill(process, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def _runs(stack: Stack) -> list[int]:
    """The processes of runs that are under way, by what they wrote into the journal.

    Waits a while for there to be some.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        ours = set(descendants(os.getpid()))
        known = {entry["process"] for entry in stack.entries()}
        found = sorted(each for each in known & ours if running(each))
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


FAULTS = (
    Fault("kill -9 of an API", kill_api),
    Fault("kill -9 of a planner child", kill_planner),
    Fault("kill -9 of a worker", kill_worker),
    Fault("kill -9 of a run", kill_run),
    Fault("kill -9 of the Ray head", kill_ray),
    Fault("kill -9 of the postmaster", kill_database),
    Fault("SIGSTOP of an API for two leases", stop_api),
    Fault("SIGSTOP of a worker for two leases", stop_worker),
    Fault("SIGSTOP of a planner for two leases", stop_planner),
    Fault("SIGSTOP of a run for two leases", stop_run),
    Fault("database away", lose_database),
    Fault("disk full", fill_disk),
)
