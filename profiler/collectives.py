"""Collectives among processes of this machine."""

from collections.abc import Iterator, Sequence

from profiler.devices import Device
from profiler.journal import Entry
from profiler.processes import told_by
from profiler.tables import Key
from profiler.timing import Measurement

TABLE = "collectives"


def measure_collectives(
    device: Device, keys: Sequence[Key], *, ranks: int, deadline: float
) -> Iterator[Entry]:
    """Each key's entry as soon as it is measured, until all are or the deadline is over.

    Raises:
        ProfileError: a process failed or was killed.
    """
    if not keys or ranks < 2:
        return
    task = {
        "keys": [dict(key) for key in keys],
        "device": device.kind,
        "memory_bytes": device.memory_bytes // (ranks if device.kind == "cpu" else 1),
    }
    for told in told_by("profiler.ranks", task, ranks=ranks, deadline=deadline):
        failed = told.get("failed", "")
        measurement = None if failed else Measurement(**told["measurement"])
        yield Entry(TABLE, keys[told["number"]], measurement, failed)
