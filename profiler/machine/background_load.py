"""Keep the other cores busy while one is measured; `company` starts this as a process.

A device is a core, and in a run all of them work: they share caches, memory and clocks. What one
core takes alone is not what it takes then. They pause when told to and are not stopped by a signal:
a stopped process would not notice the end of the profiler, and stay.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from automap.profiler.machine.devices import Device

MOST = 15
"""More would change nothing: what cores share, so many exhaust."""
LEAST_BUDGET_SECONDS = 30.0
"""A shorter one is half over before they compute."""
SIZE = 512
"""Of the product that keeps a core busy, and then its operands are copied."""
PAUSE, RESUME = b"p", b"r"


class Company:
    """Processes that compute until they are told to pause."""

    def __init__(self, number: int) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "automap.profiler.machine.background_load"],
                stdin=subprocess.PIPE,  # they end when we do
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for _ in range(number)
        ]

    def pause(self) -> None:
        """Leave the cores alone, until `resume`."""
        self._tell(PAUSE)

    def resume(self) -> None:
        """Keep them busy again."""
        self._tell(RESUME)

    def end(self) -> None:
        """For good."""
        for process in self._processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _tell(self, order: bytes) -> None:
        for process in self._processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has died; nothing depends on it
                process.stdin.write(order)
                process.stdin.flush()


@contextmanager
def company(device: Device, budget_seconds: float) -> Iterator[Company]:
    """Of a core: all others. Of a GPU: none, they share nothing that shows."""
    wanted = device.kind == "cpu" and budget_seconds >= LEAST_BUDGET_SECONDS
    kept = Company(min(device.count - 1, MOST) if wanted else 0)
    try:
        yield kept
    finally:
        kept.end()


def main() -> None:
    """Compute, unless told to pause, until the standard input closes."""
    busy = threading.Event()
    busy.set()
    threading.Thread(target=_obey, args=(busy,), daemon=True).start()
    import torch

    torch.set_num_threads(1)
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    while True:
        busy.wait()
        torch.mm(left, right)
        left, right = left.clone(), right.clone()


def _obey(busy: threading.Event) -> None:
    while order := os.read(sys.stdin.fileno(), 1):
        if order == PAUSE:
            busy.clear()
        else:
            busy.set()
    os._exit(0)


if __name__ == "__main__":
    main()
