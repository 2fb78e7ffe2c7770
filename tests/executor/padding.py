"""Rows that only fill up: the reference for what `Rows.pad` adds on its way to workers."""

import torch

from automap.executor.batch import Batch, concatenate


def pad_rows(batch: Batch, multiple: int) -> Batch:
    """Filled up to a multiple of rows with copies of the first row, of weight 0."""
    missing = -batch.num_rows % multiple
    weighted = batch.with_columns(weight=batch.weights())
    filler = weighted.take([0] * missing)
    nothing = torch.zeros_like(filler.tensor("weight"))
    return concatenate([weighted, filler.with_columns(weight=nothing)])
