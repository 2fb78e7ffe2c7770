"""What must be gone when everything has been stopped."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import httpx

from automap.service.worker.local_ray import LocalRay
from automap.service.worker.ray_jobs import RayUnavailableError
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.processes import command_of, reap, wait_until_gone
from benchmarks.chaos.stack import Stack
from tests.service.support.processes import descendants

SHARED_MEMORY = Path("/dev/shm")
GONE_SECONDS = 15.0
ASK_SECONDS = 60.0


def shared_memory() -> set[str]:
    """Files and System V segments that processes share memory by."""
    files = {str(file) for file in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.exists() else set()
    with suppress(OSError):
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        files |= {f"System V segment {line.split()[1]}" for line in lines}
    return files


def look_into_ray(stack: Stack, ledger: Ledger) -> None:
    """Note placement groups and actors that outlived their runs in a real Ray, before it stops."""
    ray = LocalRay(stack.ray_folder)
    deadline = time.monotonic() + ASK_SECONDS
    left = ["nothing is known of what"]
    while left and time.monotonic() < deadline:
        try:  # one that was killed holds nothing, and neither does its successor
            left = held_in(ray.ensure(), ray.token())
        except (RayUnavailableError, httpx.HTTPError, LookupError, ValueError) as error:
            left = [f"nothing is known ({error}) of what"]
        time.sleep(0.5)
    for what in left:
        ledger.violate(f"{what} is left in Ray", at=0)


def look_for(stack: Stack, shared_before: set[str], ledger: Ledger) -> None:
    """Note processes, shared memory and temporary folders that outlived the service."""
    reap()
    for process in wait_until_gone(list(descendants(os.getpid())), GONE_SECONDS):
        ledger.violate(f"process {process} is left: {command_of(process)}", at=0)
    reap()
    used_elsewhere = _in_use()
    for name in sorted(shared_memory() - shared_before):
        if name not in used_elsewhere:
            ledger.violate(f"shared memory is left: {name}", at=0)
    for folder in sorted(stack.temporary.iterdir()):
        ledger.violate(f"a temporary file is left: {folder.name}", at=0)


def end_all() -> None:
    """Kill whatever is left of what was started from here, also where a run was broken off."""
    for process in list(descendants(os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + GONE_SECONDS
    while list(descendants(os.getpid())) and time.monotonic() < deadline:
        reap()
        time.sleep(0.1)


def held_in(url: str, token: str) -> list[str]:
    """Everything that holds resources, by Ray's own state."""
    held = []
    for kind, over in (("placement_groups", "REMOVED"), ("actors", "DEAD")):
        answer = httpx.get(
            f"{url}/api/v0/{kind}",
            params={"limit": 10_000},
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
            trust_env=False,
        )
        found = answer.raise_for_status().json()["data"]["result"]["result"]
        held += [f"{kind[:-1]} {each}" for each in found if each["state"] != over]
    return held


def _in_use() -> set[str]:
    """Shared memory that other processes of this machine use, who have nothing to do with us."""
    found: set[str] = set()
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            for line in (process / "maps").read_text().splitlines():
                _, _, path = line.partition("/dev/shm")
                if path:
                    found.add(f"/dev/shm{path.removesuffix(' (deleted)')}")
                elif "/SYSV" in line:
                    found.add(f"System V segment {line.split()[4]}")
    return found
