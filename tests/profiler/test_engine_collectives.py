"""The engine's own all-reduce, measured between two processes of this machine.

On cores without AVX-512 vLLM has no shared memory of its own, and torch's all-reduce is measured.
"""

import os
import time

import pytest

pytest.importorskip("vllm")

from automap.profiler.machine.devices import choose_device
from automap.profiler.measure.collectives import ENGINE_TABLE, engine_keys, measure_collectives

pytestmark = pytest.mark.many_processes


@pytest.mark.slow
def test_the_engines_all_reduce_is_measured_and_leaves_no_shared_memory() -> None:
    device = choose_device("cpu")
    keys = engine_keys(device, 2)[:1]
    before = set(os.listdir("/dev/shm"))
    deadline = time.monotonic() + 60.0
    entries = list(
        measure_collectives(device, keys, ranks=2, deadline=deadline, table=ENGINE_TABLE)
    )
    assert [entry.failed for entry in entries] == [""]
    assert all(entry.measurement and entry.measurement.seconds > 0 for entry in entries)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "cpushm" in name]
