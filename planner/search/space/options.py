"""From rows of the tables to the options of a placement problem."""

from dataclasses import replace

import numpy as np

from automap.planner.layout import IntArray
from automap.planner.search.candidates.tables import CallTable, Tables
from automap.planner.search.model.options import CallOptions, CallPart, CopyOptions
from automap.planner.search.model.problem import Problem
from automap.planner.search.space.rows import Rows


def problem_of(problem: Problem, tables: Tables, rows: Rows) -> Problem:
    """The placement problem with an option for every row that takes part."""
    positions, copies = [], []
    for choice, copy, mask in zip(problem.copies, tables.copies, rows.copies, strict=True):
        numbers = np.flatnonzero(mask)
        position = np.full(len(copy), -1, dtype=np.int64)
        position[numbers] = np.arange(len(numbers))
        positions.append(position)
        options = CopyOptions(
            copy.pool[numbers],
            copy.layouts.num_gpus[numbers],
            copy.resident_bytes[numbers],
            copy.host_bytes[numbers],
            copy.sync_seconds[numbers],
            numbers,
        )
        copies.append(replace(choice, options=options))
    parts: list[list[CallPart]] = [[] for _ in problem.calls]
    for table, mask in zip(tables.calls, rows.calls, strict=True):
        numbers = np.flatnonzero(mask)
        owners = positions[table.copy][table.copy_row[numbers]]
        parts[table.call].append(_part(tables, table, numbers, owners))
    calls = [
        replace(call, options=CallOptions(tuple(mine)))
        for call, mine in zip(problem.calls, parts, strict=True)
    ]
    return replace(problem, copies=tuple(copies), calls=tuple(calls))


def _part(tables: Tables, table: CallTable, numbers: IntArray, owners: IntArray) -> CallPart:
    """The options of a call on a copy: rows of its table, and the copy's options they belong to."""
    seconds, transient = table.seconds[numbers], table.transient_bytes[numbers]
    if table.chunk_ready_shares is None and table.tail is None:
        none = np.zeros((len(numbers), 0))
        return CallPart(table.copy, owners, seconds, transient, numbers, none, None, seconds)
    part = table.take(numbers)
    counts = tables.copies[table.copy].layouts.num_gpus[part.copy_row]
    fewer, main_phase = part.tails(counts)
    tails = None if part.tail is None else np.where(fewer < counts, fewer, 0)
    return CallPart(
        table.copy,
        owners,
        seconds,
        transient,
        numbers,
        part.chunk_ready_seconds(),
        tails,
        main_phase,
    )
