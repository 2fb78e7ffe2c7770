"""How fast one thread of this machine updates parameters with torch's fused AdamW.

    python -m benchmarks.host_adam

Printed: bytes a second and seconds for 10^9 parameters, median and range of several steps.
`HOST_UPDATE_BYTES_PER_SECOND` (planner/cost/constants.py) is chosen by it.
"""

import statistics
import time

import torch

PARAMETERS = 50_000_000
STEPS = 9
TRAFFIC_BYTES = 28
"""Of a parameter: gradient, master and two moments are read, the last three are written."""


def step_seconds() -> list[float]:
    """Seconds of each step after a first one, which makes the moments."""
    torch.set_num_threads(1)
    weights = torch.nn.Parameter(torch.zeros(PARAMETERS))
    weights.grad = torch.ones(PARAMETERS)
    optimizer = torch.optim.AdamW([weights], lr=1e-3, fused=True)
    optimizer.step()
    found = []
    for _ in range(STEPS):
        began = time.perf_counter()
        optimizer.step()
        found.append(time.perf_counter() - began)
    return found


def main() -> None:
    seconds = step_seconds()
    for name, each in (
        ("median", statistics.median(seconds)),
        ("fastest", min(seconds)),
        ("slowest", max(seconds)),
    ):
        rate = PARAMETERS * TRAFFIC_BYTES / each / 1e9
        print(f"{name:8} {rate:5.1f} GB/s, {each / PARAMETERS * 1e9:.2f} s for 10^9 parameters")


if __name__ == "__main__":
    main()
