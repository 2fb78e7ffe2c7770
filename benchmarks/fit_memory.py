"""Fit the constants of memory to published peaks, and say how wrong the counts are.

Nearly all bytes are counted (planner/cost/shards.py, memory.py, activations.py) and nothing of
that is fitted. Left are the two that only nvidia-smi sees: NCCL's buffers per kind of group, and
the part of the allocator's blocks that is not in use. Every pair on a grid is tried and the one
kept with the least mean absolute ln(predicted ÷ measured), a source counting with the root of its
rows. Leaving out in turn every model on a GPU (one source has nearly all rows), fitting to the rest
and predicting those gives the errors that unseen runs can expect. Takes a minute or two.

    python -m benchmarks.fit_memory memory.csv
"""

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from automap.planner.cost import constants
from automap.planner.units import MIB
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import MemoryRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.training import predict_memory

FRAGMENTATION_SHARES = tuple(percent / 100 for percent in range(13))
BUFFER_BYTES = tuple(mib * MIB for mib in range(0, 1025, 128))
GRID = tuple(itertools.product(FRAGMENTATION_SHARES, BUFFER_BYTES))


def log_ratio(row: MemoryRow) -> float | None:
    """ln(predicted ÷ measured) of a peak; None where there is no prediction or no peak."""
    if row.peak_memory_bytes is None:
        return None
    try:
        found = predict_memory(row, Assumptions())["peak_memory_bytes"]
    except CannotPredictError:
        return None
    assert isinstance(found, Estimate)
    return math.log(found.value / row.peak_memory_bytes)


def usable(row: MemoryRow) -> bool:
    return row.quality in ("A", "B") and log_ratio(row) is not None


def errors_on_grid(rows: list[MemoryRow]) -> np.ndarray:
    """[grid, rows] of ln(predicted ÷ measured); leaves the constants as they were."""
    shipped = constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES
    found = []
    for share, buffers in GRID:
        constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES = share, buffers
        found.append([log_ratio(row) for row in rows])
    constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES = shipped
    return np.array(found, dtype=np.float64)


def best(errors: np.ndarray, weights: np.ndarray, kept: np.ndarray) -> int:
    """The point of the grid with the least weighted error on the rows kept."""
    return int(np.argmin(np.abs(errors[:, kept]) @ weights[kept]))


def tell(name: str, errors: Iterable[float]) -> None:
    relative = np.exp(np.array(list(errors))) - 1.0
    if len(relative):
        print(
            f"{name:44.44s} {len(relative):4d} rows  median {np.median(np.abs(relative)):6.1%}  "
            f"mean {np.mean(np.abs(relative)):6.1%}  bias {np.mean(relative):+7.1%}"
        )


def main() -> None:
    table = parse_table(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rows = [row for row in table.rows if isinstance(row, MemoryRow) and usable(row)]
    shipped = np.array([log_ratio(row) for row in rows], dtype=np.float64)
    counts = {row.source: sum(other.source == row.source for other in rows) for row in rows}
    for source in counts:
        own = [error for row, error in zip(rows, shipped, strict=True) if row.source == source]
        tell(source, own)
    tell("as shipped: all", shipped)

    seen = [index for index, row in enumerate(rows) if row.measured_by == "nvidia-smi"]
    errors = errors_on_grid([rows[index] for index in seen])
    weights = np.array([counts[rows[index].source] ** -0.5 for index in seen])
    everything = np.ones(len(seen), dtype=bool)
    chosen = best(errors, weights, everything)
    share, buffers = GRID[chosen]
    print(f"  FRAGMENTATION_SHARE {share:.2f} (shipped {constants.FRAGMENTATION_SHARE:.2f})")
    print(
        f"  COMMUNICATION_BUFFER_BYTES {buffers / MIB:.0f} MiB "
        f"(shipped {constants.COMMUNICATION_BUFFER_BYTES / MIB:.0f} MiB)"
    )
    tell("nvidia-smi: as shipped", shipped[seen])
    tell("nvidia-smi: fitted", errors[chosen])

    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for position, index in enumerate(seen):
        groups[rows[index].model, rows[index].gpu_type].append(position)
    left_out = np.zeros(len(seen))
    for own in groups.values():
        kept = everything.copy()
        kept[own] = False
        left_out[own] = errors[best(errors, weights, kept), own]
    tell("nvidia-smi: each model and GPU left out", left_out)
    whole = shipped.copy()
    whole[seen] = left_out
    tell("all: each model and GPU left out", whole)


if __name__ == "__main__":
    main()
