"""True seconds ÷ estimated seconds, and what tables say once they are known."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.cost.pricing import whole_microseconds
from automap.planner.explanation.study import Study
from automap.planner.layout import FloatArray
from automap.planner.search import CallTable, CopyTable


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """By what the seconds of every option are multiplied; 1: the estimate is right.

    A systematic error is that of a call in every option at once: whatever layout it would run
    with, it takes so many times as long as estimated.
    """

    work: FloatArray
    """[calls, pools]; a function on the host takes pool 0."""
    transition: FloatArray
    """[calls, pools] of the part of a call that moves its weights and state."""
    host: FloatArray
    """[calls, pools] of the part of a call that is work on the host."""
    sync: FloatArray
    """[copies, pools]: of a weight sync, on the side of the copy."""

    @staticmethod
    def ones(study: Study) -> "Factors":
        """Every estimate is right."""
        calls, copies = len(study.job.dataflow.calls), len(study.tables.copies)
        pools = len(study.job.pools)
        work, transition, host = (np.ones((calls, pools)) for _ in range(3))
        return Factors(work, transition, host, np.ones((copies, pools)))

    def raised(self, exponent: float) -> "Factors":
        """Every factor to a power: 0 is no error, 1 this one, −1 its inverse."""
        return Factors(*(each**exponent for each in self.parts()))

    def parts(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """All of them, in their order."""
        return self.work, self.transition, self.host, self.sync


def scaled(study: Study, factors: Factors) -> Study:
    """The study with true seconds in place of estimates; prices stay whole microseconds."""
    tables = study.tables
    copies = [
        _scaled_copy(copy, side) if np.any(side != 1.0) else copy
        for copy, side in zip(tables.copies, factors.sync, strict=True)
    ]
    calls = [_scaled_call(study, number, factors) for number in range(len(tables.calls))]
    choices = tuple(
        replace(call, fixed_seconds=float(call.fixed_seconds * factors.work[index, 0]))
        for index, call in enumerate(study.problem.calls)
    )
    problem = replace(study.problem, calls=choices)
    tables = replace(tables, copies=copies, calls=calls)
    return study.on(replace(study.space, tables=tables, problem=problem))


def _scaled_copy(copy: CopyTable, side: FloatArray) -> CopyTable:
    """The table with its weight-sync seconds, in one node or several, times its pool's factor."""
    times, alone = side[copy.pool], copy.node_sync_seconds
    return replace(
        copy,
        sync_seconds=whole_microseconds(copy.sync_seconds * times),
        node_sync_seconds=None if alone is None else whole_microseconds(alone * times),
    )


def _scaled_call(study: Study, number: int, factors: Factors) -> CallTable:
    table = study.tables.calls[number]
    work, move, host = (each[table.call] for each in factors.parts()[:3])
    if np.all(work == 1.0) and np.all(move == 1.0) and np.all(host == 1.0):
        return table
    pool = study.tables.copies[table.copy].pool[table.copy_row]
    seconds = table.seconds * work[pool]
    if np.any(work != move):
        seconds = seconds + study.parts[number].transition * (move - work)[pool]
    if np.any(work != host):
        seconds = seconds + study.parts[number].host * (host - work)[pool]
    return replace(table, seconds=whole_microseconds(seconds))
