"""Which layouts and settings a strategy may use, where its framework has no others."""

import numpy as np

from automap.planner.layout import SHARDINGS
from automap.planner.search.candidates.tables import BoolArray, CallTable, CopyTable, Tables
from automap.planner.search.space.rows import Rows, all_rows

FULL = SHARDINGS.index("full")
MEGATRON = [SHARDINGS.index("none"), SHARDINGS.index("optimizer")]


def zero3(tables: Tables) -> Rows:
    """Data parallelism with ZeRO-3 for every home; generation in tensor groups, no pipeline."""
    rows = all_rows(tables)
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        if copy.shadow_of is None:
            mask &= _is_zero3(copy)
    return _without_pipelined_engines(tables, rows)


def fsdp_or_megatron(tables: Tables) -> Rows:
    """Fully sharded data parallelism, or tensor and pipeline sizes with a sharded optimizer."""
    rows = all_rows(tables)
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        if copy.shadow_of is None:
            mask &= _is_zero3(copy) | _is_megatron(copy)
    return _without_pipelined_engines(tables, rows)


def one_parallelism(tables: Tables) -> Rows:
    """Tensor and pipeline sizes for training, and generation with the same ones."""
    rows = all_rows(tables)
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        mask &= _is_megatron(copy)
    for mask, table in zip(rows.calls, tables.calls, strict=True):
        if _generates(tables, table):
            layouts = tables.copies[table.copy].layouts
            for size in ("tensor_parallel_size", "pipeline_parallel_size"):
                mask &= getattr(table.engine, size) == getattr(layouts, size)[table.copy_row]
    return _aligned(tables, rows)


def tensor_parallel_inference(tables: Tables) -> Rows:
    """Megatron layouts where a model trains; one tensor group where it only scores.

    Rollouts run on several tensor groups, as replicas.
    """
    rows = all_rows(tables)
    for number, (mask, copy) in enumerate(zip(rows.copies, tables.copies, strict=True)):
        if copy.shadow_of is None and tables.trains(number):
            mask &= _is_megatron(copy)
        elif copy.shadow_of is None:
            mask &= copy.layouts.tensor_parallel_size == copy.layouts.num_gpus
    return _without_pipelined_engines(tables, rows)


def two_replicas(tables: Tables) -> Rows:
    """Homes of two replicas in tensor groups of four, the rest pipelined.

    Tensor groups are smaller on few GPUs, and where four do not divide the heads.
    """
    rows = all_rows(tables)
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        if copy.shadow_of is None:
            sizes = copy.layouts
            mask &= sizes.data_parallel_size == np.minimum(2, sizes.num_gpus)
            mask &= _is_megatron(copy) & (sizes.tensor_parallel_size <= 4)
            largest = np.zeros(int(sizes.num_gpus.max(initial=0)) + 1, dtype=np.int64)
            np.maximum.at(largest, sizes.num_gpus[mask], sizes.tensor_parallel_size[mask])
            mask &= sizes.tensor_parallel_size == largest[sizes.num_gpus]
    return _aligned(tables, rows)


def _is_zero3(copy: CopyTable) -> BoolArray:
    sizes = copy.layouts
    data_parallel: BoolArray = sizes.data_parallel_size == sizes.num_gpus
    sharded: BoolArray = (sizes.sharding == FULL) | (sizes.num_gpus == 1)
    return data_parallel & sharded


def _is_megatron(copy: CopyTable) -> BoolArray:
    return np.asarray(np.isin(copy.layouts.sharding, MEGATRON), dtype=np.bool_)


def _generates(tables: Tables, table: CallTable) -> bool:
    return tables.dataflow_calls[table.call].kind == "generate"


def _without_pipelined_engines(tables: Tables, rows: Rows) -> Rows:
    for mask, table in zip(rows.calls, tables.calls, strict=True):
        if _generates(tables, table):
            mask &= table.engine.pipeline_parallel_size == 1
    return _aligned(tables, rows)


def _aligned(tables: Tables, rows: Rows) -> Rows:
    """Only settings of layouts that are left."""
    for mask, table in zip(rows.calls, tables.calls, strict=True):
        mask &= rows.copies[table.copy][table.copy_row]
    return rows
