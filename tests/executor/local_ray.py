"""A Ray of one node for a test module; it has more cores than the machine: workers mostly wait."""

from collections.abc import Iterator
from contextlib import contextmanager

import ray

from automap.executor.run.local_ray import start_ray


@contextmanager
def local_ray(num_cpus: int = 8) -> Iterator[None]:
    start_ray(num_cpus=num_cpus, object_store_memory=128 * 2**20, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()
