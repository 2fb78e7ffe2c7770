"""Rows dealt to ranks and micro-batches so that each has about equally many tokens."""

import heapq
from collections.abc import Sequence


def even_parts(
    tokens: Sequence[int], num_parts: int, *, num_rows: Sequence[int] | None = None
) -> list[list[int]]:
    """Indices of the rows of each part, in ascending order.

    Longest first, each to the part with the fewest tokens (Graham 1969, Bounds on Multiprocessing
    Timing Anomalies): the fullest part has at most 4/3 of the tokens that it must have.

    Args:
        tokens: of each row.
        num_parts: at least 1; may be more than there are rows.
        num_rows: of each part; default: as it comes.
    """
    parts: list[list[int]] = [[] for _ in range(num_parts)]
    open_parts = [(0, part) for part in range(num_parts) if num_rows is None or num_rows[part]]
    for row in sorted(range(len(tokens)), key=lambda each: -tokens[each]):
        total, part = heapq.heappop(open_parts)
        parts[part].append(row)
        if num_rows is None or len(parts[part]) < num_rows[part]:
            heapq.heappush(open_parts, (total + tokens[row], part))
    return [sorted(part) for part in parts]
