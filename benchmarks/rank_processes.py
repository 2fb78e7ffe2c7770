"""Processes that are the ranks of a benchmark on this machine."""

import multiprocessing
import socket
from collections.abc import Callable


def run_ranks(rank: Callable[..., None], count: int, *given: object) -> None:
    """Call `rank(number, port, *given)` in a process each; the port is free for their store.

    Raises:
        SystemExit: one of them failed.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=rank, args=(number, port, *given)) for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(1)
