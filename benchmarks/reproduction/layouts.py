"""What a paper's system can lay out, where that is less than the whole space."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from automap.planner.layout import SHARDINGS
from automap.planner.search.candidates.tables import Tables
from automap.planner.search.space.rows import Rows, all_rows
from automap.planner.search.strategies.restrictions import one_parallelism
from benchmarks.reproduction.jobs import GPUS_PER_NODE, LLAMA
from benchmarks.reproduction.published import published

Reduction = Callable[[Tables], Rows]
"""The rows of candidates that a system can lay out."""
MEGATRON = ("none", "optimizer")
"""Its shardings; the distributed optimizer is the second."""
TRAINED = frozenset({"actor", "critic"})
"""Roles whose models train."""


def three_d(tables: Tables) -> Rows:
    """HybridFlow's (p, t, d): Megatron's sizes without virtual stages or fully sharded weights."""
    return _homes_within(tables, all_rows(tables))


def as_stated(models: Mapping[str, Any]) -> Reduction:
    """Megatron's layouts with the sizes that HybridFlow's paper states for training.

    Models that train have the tensor size of its Figures 14 and 15 (all GPUs, where these are
    fewer), and at most as many pipeline stages: half of a cluster does not always hold whole
    pipelines of that many. `models`: the catalogue's name by role.
    """
    facts, names = published().hybridflow.transition, {name: key for key, name in LLAMA.items()}
    sizes = {}
    for role in TRAINED.intersection(models):
        model = names[models[role]]
        sizes[role] = facts.training_tensor_size[model], facts.training_pipeline_size[model]
    return partial(_as_stated, sizes)


def _as_stated(sizes: Mapping[str, tuple[int, int]], tables: Tables) -> Rows:
    rows = three_d(tables)
    for mask, copy in zip(rows.copies, tables.copies, strict=True):
        if copy.shadow_of is None and copy.role in sizes:
            tensor, stages = sizes[copy.role]
            tensors = np.minimum(tensor, copy.layouts.num_gpus)
            mask &= copy.layouts.tensor_parallel_size == tensors
            mask &= copy.layouts.pipeline_parallel_size <= stages
    return _aligned(tables, rows)


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
