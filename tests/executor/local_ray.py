"""A Ray of one node for a test module; it has more cores than the machine: workers mostly wait."""

from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def local_ray(num_cpus: int = 8) -> Iterator[None]:
    ray.init(
        address="local",  # never a Ray that somebody else runs on this machine
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=128 * 2**20,
        log_to_driver=False,
    )
    try:
        yield
    finally:
        ray.shutdown()
