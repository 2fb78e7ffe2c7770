"""Fit the constants of memory to published peaks, and say how wrong the counts are.

Nearly all bytes are counted (planner/cost/shards.py, memory.py, activations.py) and nothing of
that is fitted. Left are the two that only nvidia-smi sees: NCCL's buffers per kind of group, and
the part of the allocator's blocks that is not in use (`benchmarks.hierarchical`; a project counts
with the root of its rows). A peak is linear in the buffers and in 1 ÷ (1 − share), so each row is
priced twice. Printed: prior, posterior and rows behind both; errors as shipped, fitted, and on
every row when its project, or its model on all its GPUs, had no part in the fit.

    python -m benchmarks.fit_memory MEMORY.csv
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automap.planner.cost import constants
from automap.planner.layout import FloatArray
from automap.planner.validation.groups import project_of
from automap.planner.validation.physics import sound_rows
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import MemoryRow
from automap.planner.validation.table import parse_table
from automap.planner.validation.training import predict_memory
from benchmarks import hierarchical
from benchmarks.hierarchical import Prior, Problem, tell

PRIORS = (
    Prior("FRAGMENTATION_SHARE", 0.05, math.log(2.0)),
    Prior("COMMUNICATION_BUFFER_BYTES", 512 * 2.0**20, math.log(2.0)),
)
SCHEMES = ("project", "model")


@dataclass(frozen=True)
class Peaks:
    """Peaks as functions of both constants."""

    rows: tuple[MemoryRow, ...]
    allocated: FloatArray
    """Bytes that the allocator's share grows with; 0 where nvidia-smi was not asked."""
    rest: FloatArray
    buffers: FloatArray
    """Kinds of groups with buffers of their own; 0 where they were not seen."""

    @classmethod
    def of(cls, rows: Sequence[MemoryRow]) -> "Peaks":
        shipped = constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES
        constants.FRAGMENTATION_SHARE = 0.0
        found = []
        for size in (0, shipped[1]):
            constants.COMMUNICATION_BUFFER_BYTES = size
            found.append([peak_of(row) or 0.0 for row in rows])
        constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES = shipped
        without, full = np.array(found)
        seen = np.array([row.measured_by == "nvidia-smi" for row in rows])
        allocated = np.where(seen, without - constants.CONTEXT_BYTES, 0.0)
        return cls(tuple(rows), allocated, without - allocated, (full - without) / shipped[1])

    def errors(self, values: FloatArray) -> FloatArray:
        """[row] ln(predicted ÷ measured)."""
        share, buffers = values
        measured = np.array([row.peak_memory_bytes for row in self.rows], dtype=np.float64)
        peaks = self.allocated / (1.0 - share) + self.rest + buffers * self.buffers
        return np.asarray(np.log(peaks / measured))

    def groups(self, scheme: str) -> tuple[str, ...]:
        by_project = scheme == "project"
        return tuple(project_of(row) if by_project else row.model for row in self.rows)


def peak_of(row: MemoryRow) -> float | None:
    """Predicted bytes; None where there is no prediction or no peak."""
    if row.peak_memory_bytes is None:
        return None
    try:
        found = predict_memory(row, Assumptions())["peak_memory_bytes"]
    except CannotPredictError:
        return None
    return found.value if isinstance(found, Estimate) else None


def peaks_of(path: str) -> Peaks:
    every = parse_table(Path(path).read_text(encoding="utf-8")).rows
    good = sound_rows([row for row in every if row.quality in ("A", "B")])
    return Peaks.of([row for row in good if isinstance(row, MemoryRow) and peak_of(row)])


def fit(peaks: Peaks) -> tuple[Problem, tuple[int, ...]]:
    """The problem of all peaks, and which constants stay free."""
    slopes = hierarchical.numerical_slopes(peaks.errors)
    problem = Problem(PRIORS, peaks.errors, slopes, peaks.groups("project"))
    return problem, hierarchical.choose(problem, {name: peaks.groups(name) for name in SCHEMES})


def main() -> None:
    peaks = peaks_of(sys.argv[1])
    problem, free = fit(peaks)
    found = hierarchical.solve(problem, np.ones(len(peaks.rows)), free)
    shipped = np.array([constants.FRAGMENTATION_SHARE, constants.COMMUNICATION_BUFFER_BYTES])
    hierarchical.tell_constants(problem, found, free, shipped)
    projects = problem.groups
    tell("as shipped", problem.errors(shipped), projects)
    tell("fitted", problem.errors(found.values), projects)
    for name in SCHEMES:
        tell(
            f"left out: {name}",
            hierarchical.left_out(problem, peaks.groups(name), free),
            projects,
        )


if __name__ == "__main__":
    main()
