"""What a paper's system can lay out, where that is less than the whole space."""

import numpy as np

from automap.planner.layout import SHARDINGS
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.space.rows import Rows, all_rows
from automap.planner.search.strategies.restrictions import one_parallelism
from benchmarks.reproduction.jobs import GPUS_PER_NODE

MEGATRON = ("none", "optimizer")
"""Its shardings; the distributed optimizer is the second."""


def three_d(tables: Tables) -> Rows:
    """HybridFlow's (p, t, d): Megatron's sizes without virtual stages or fully sharded weights."""
    return _homes_within(tables, all_rows(tables))


def symmetric(tables: Tables) -> Rows:
    """One tensor and pipeline size for all calls of a model, tensor groups as large as a node."""
    rows = _homes_within(tables, one_parallelism(tables))
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        sizes = copy.layouts
        mask &= sizes.tensor_parallel_size == np.minimum(GPUS_PER_NODE, sizes.num_gpus)
    return _aligned(tables, rows)


def _homes_within(tables: Tables, rows: Rows) -> Rows:
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        sizes = copy.layouts
        if copy.shadow_of is None:
            mask &= np.isin(sizes.sharding, [SHARDINGS.index(name) for name in MEGATRON])
            mask &= sizes.virtual_pipeline_parallel_size == 1
    return _aligned(tables, rows)


def _aligned(tables: Tables, rows: Rows) -> Rows:
    """Only settings of layouts that are left."""
    for mask, table in zip(rows.calls, tables.calls, strict=True):
        mask &= rows.copies[table.copy][table.copy_row]
    return rows
