"""A Ray on this machine, also where others keep the machine busy."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import services

START_SECONDS = 180.0
"""Most that its node may take to be there. Ray by itself gives it 30, in which a machine that is
busy with other work does not start its six processes."""
_POLL_SECONDS = 0.1


def start_ray(**options: Any) -> None:
    """Start a local Ray; see `ray.init`.

    Raises:
        Exception: as Ray said it; it has no common class.
    """
    with _patience(START_SECONDS):
        ray.init(address="local", include_dashboard=False, **options)


@contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Have Ray's question for its node answered late; the time it waits is no setting of Ray's."""
    given = services.get_node

    def get_node(*arguments: Any) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            try:
                return given(*arguments)
            except RuntimeError:  # there is none yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = given
