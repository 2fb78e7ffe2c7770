"""Rows in the order in which data-parallel ranks get about equally many tokens of them."""

import numpy as np

from automap.executor.even_parts import even_parts
from automap.executor.workers.encoded_rows import Indices
from automap.executor.workers.protocols import row_ranges
from automap.executor.workers.row_references import Rows


def even_order(rows: Rows, num_parts: int) -> Indices:
    """[rows] the order in which parts on end, of equally many rows, have even tokens.

    The order that they have, where that is as even, or where rows are no sequences, or fewer than
    the parts.
    """
    tokens, as_they_are = rows.tokens(), np.arange(rows.num_rows)
    if num_parts == 1 or tokens is None or rows.num_rows < num_parts:
        return as_they_are
    ranges = row_ranges(rows.num_rows, num_parts)
    parts = even_parts(
        tokens.tolist(), num_parts, num_rows=[stop - start for start, stop in ranges]
    )
    fullest = max(int(tokens[part].sum()) for part in parts)
    if max(int(tokens[start:stop].sum()) for start, stop in ranges) <= fullest:
        return as_they_are
    return np.concatenate([np.array(part, dtype=np.int64) for part in parts])
