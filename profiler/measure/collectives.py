"""Collectives among processes of this machine."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from automap.planner.profiles import Key
from automap.profiler.machine.devices import Device
from automap.profiler.measure.child_processes import reported_by
from automap.profiler.measure.shapes import BYTES
from automap.profiler.results.journal import Entry
from automap.profiler.results.measurement import Measurement

TABLE = "collectives"
ENGINE_TABLE = "custom_all_reduce"
ENGINE_COLLECTIVE = "engine_all_reduce"
"""Name between the processes for vLLM's all-reduce, which between cores uses shared memory."""
MOST_ENGINE_BYTES = 16 * 2**20
"""Largest buffer: what an engine reduces is no larger."""


def engine_keys(device: Device, ranks: int) -> list[Key]:
    """Keys of the engine's own all-reduce, the most wanted first; only between cores, with vLLM."""
    if device.kind != "cpu" or ranks < 2 or not find_spec("vllm"):
        return []
    return [{"num_gpus": ranks, "size_bytes": size} for size in BYTES if size <= MOST_ENGINE_BYTES]


def measure_collectives(
    device: Device, keys: Sequence[Key], *, ranks: int, deadline: float, table: str = TABLE
) -> Iterator[Entry]:
    """Each key's entry as soon as it is measured, until all are or the deadline is over.

    Raises:
        ProfileError: a process failed or was killed.
    """
    if not keys or ranks < 2:
        return
    named: Key = {} if table == TABLE else {"collective": ENGINE_COLLECTIVE}
    task = {
        "keys": [{**key, **named} for key in keys],
        "device": device.kind,
        "memory_bytes": device.memory_bytes // (ranks if device.kind == "cpu" else 1),
    }
    for reported in reported_by(
        "automap.profiler.measure.collective_rank", task, ranks=ranks, deadline=deadline
    ):
        failed = reported.get("failed", "")
        measurement = None if failed else Measurement(**reported["measurement"])
        yield Entry(table, keys[reported["number"]], measurement, failed)
