"""What /proc tells of processes."""

import os
from collections.abc import Iterator
from pathlib import Path


def children(process_id: int) -> set[int]:
    """The processes that any of its threads has started."""
    lists = Path(f"/proc/{process_id}/task").glob("*/children")
    return {int(child) for file in lists for child in file.read_text().split()}


def descendants(process_id: int) -> Iterator[int]:
    """Its children, and theirs."""
    for child in sorted(children(process_id)):
        yield child
        try:
            yield from descendants(child)
        except OSError:  # it has ended meanwhile
            continue


def planners_of(service: int) -> set[int]:
    """The planner processes of a service, which its fork server has started."""
    return set(descendants(service)) - children(service)


def peak_bytes(process_id: int | str) -> int:
    """Most memory that a process has held so far; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def processor_seconds(process_id: int) -> float:
    """That a process has used, user and system."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
