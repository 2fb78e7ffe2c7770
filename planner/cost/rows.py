"""Columns of candidates: find the distinct combinations, price those, spread the answer back."""

import numpy as np

from automap.planner.layout import FloatArray, IntArray

LARGEST_TABLE = 2**16
"""Keys up to which a table in the processor's cache beats a sort."""


def distinct_rows(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct combinations of equally long non-negative columns.

    Returns (first, inverse): `column[first]` are the combinations, `first[inverse]` a row equal
    to each row. Operator look-ups cost far more than this sort, and few combinations differ.
    """
    if len(columns[0]) == 0:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty
    key = np.zeros(len(columns[0]), dtype=np.int64)
    span = 1
    for column in columns:
        width = int(column.max()) + 1
        if span > 2**62 // width:  # keep the mixed-radix key inside int64
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key = key * width + column
        span *= width
    if span <= LARGEST_TABLE:
        return _by_table(key, span)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.reshape(-1).astype(np.int64)


def distinct_columns(*tables: FloatArray | IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of equally long tables [row, column], compared over all their columns.

    Returns (first, inverse): the first row of each distinct one, and for each row which it equals.
    """
    rows = np.concatenate([np.ascontiguousarray(table).view(np.int64) for table in tables], axis=1)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first.astype(np.int64), inverse.reshape(-1).astype(np.int64)


def _by_table(key: IntArray, span: int) -> tuple[IntArray, IntArray]:
    """(first, inverse) of keys below `span`, in linear time, where a table of all keys fits."""
    first_of = np.full(span, -1, dtype=np.int64)
    first_of[key[::-1]] = np.arange(len(key) - 1, -1, -1, dtype=np.int64)
    there = np.flatnonzero(first_of >= 0)
    number_of = np.empty(span, dtype=np.int64)
    number_of[there] = np.arange(len(there))
    return first_of[there], number_of[key]


def ceil_div(numerator: IntArray | int, denominator: IntArray | int) -> IntArray:
    """⌈a / b⌉ for positive integers."""
    return np.asarray(-(-np.asarray(numerator) // np.asarray(denominator)), dtype=np.int64)
