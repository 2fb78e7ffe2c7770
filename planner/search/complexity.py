"""How hard a placement is to set up, as a tuple that orders placements: less is simpler."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from automap.planner.layout import IntArray
from automap.planner.search.space.rows import Selected
from automap.planner.search.space.search_space import SearchSpace

SIZES = ("tensor", "pipeline", "context", "data", "expert")
"""The parallel dimensions of a layout."""
ENGINE_SIZES = tuple(name for name in SIZES if name != "context")
"""The parallel dimensions of an engine that generates."""
DATA = "data"


class Complexity(NamedTuple):
    """What makes a placement hard to set up, what weighs most first: less is simpler."""

    ranges: int
    range_sizes: int
    layouts: int
    dimensions: int
    """Parallel sizes above one, over all layouts and generating engines, but for data ranks, which
    need no choice: they are what is left."""
    odd_sizes: int
    """Sizes that are neither a power of two nor the usual one."""
    shadows: int
    interleaved_pipelines: int


@dataclass(frozen=True, slots=True)
class Traits:
    """Per table and row what the complexity of a placement counts."""

    sizes: list[list[tuple[int, ...]]]
    """Per copy and row: the sizes of its layout."""
    dimensions: list[IntArray]
    """Per copy: how many parallel sizes are above one, but for that of data ranks."""
    odd: list[IntArray]
    """Per copy: how many sizes, that of the range among them, are neither a power of two nor the
    pool's number of nodes."""
    engine_dimensions: list[IntArray]
    """Per call table: of the layout that it generates with."""
    engine_odd: list[IntArray]

    @staticmethod
    def of(space: SearchSpace) -> "Traits":
        """The traits of all rows of a space."""
        tables, pools = space.tables, space.problem.pools
        nodes = np.array([-(-p.num_gpus // p.gpus_per_node) for p in pools], dtype=np.int64)
        whole = np.array([p.num_gpus for p in pools], dtype=np.int64)
        sizes, dimensions, odd, engine_dimensions, engine_odd = [], [], [], [], []
        for copy in tables.copies:
            columns = _columns(copy.layouts)
            interleaved = copy.layouts.virtual_pipeline_parallel_size
            sizes.append(list(zip(*(c.tolist() for c in (*columns, interleaved)), strict=True)))
            dimensions.append(
                _above_one([c for c, name in zip(columns, SIZES, strict=True) if name != DATA])
            )
            own = _odd(columns, nodes[copy.pool])
            own += _odd([copy.layouts.num_gpus], whole[copy.pool])
            odd.append(own)
        for table in tables.calls:
            engine = [getattr(table.engine, f"{name}_parallel_size") for name in ENGINE_SIZES]
            generates = tables.dataflow_calls[table.call].kind == "generate"
            pool = tables.copies[table.copy].pool[table.copy_row]
            split = [c for c, name in zip(engine, ENGINE_SIZES, strict=True) if name != DATA]
            engine_dimensions.append(_above_one(split) * generates)
            engine_odd.append(_odd(engine, nodes[pool]) * generates)
        return Traits(sizes, dimensions, odd, engine_dimensions, engine_odd)


def _columns(layouts: object) -> list[IntArray]:
    return [getattr(layouts, f"{name}_parallel_size") for name in SIZES]


def _above_one(columns: list[IntArray]) -> IntArray:
    return sum((column > 1).astype(np.int64) for column in columns) + np.zeros_like(columns[0])


def _odd(columns: list[IntArray], usual: IntArray) -> IntArray:
    """Per row how many sizes are neither a power of two nor the usual one."""
    counts = np.zeros(len(usual), dtype=np.int64)
    for column in columns:
        counts += ((column & (column - 1)) != 0) & (column != usual)
    return counts


def complexity(space: SearchSpace, traits: Traits, selected: Selected) -> Complexity:
    """How hard a placement is to set up."""
    here = [
        (index, row, first)
        for index, (row, first) in enumerate(
            zip(selected.copy_rows, selected.first_gpus, strict=True)
        )
        if row is not None and first is not None
    ]
    copies = space.tables.copies
    ranges = {(first, int(copies[n].layouts.num_gpus[row])) for n, row, first in here}
    by_key = {(table.call, table.copy): n for n, table in enumerate(space.tables.calls)}
    generated = [
        (by_key[call, chosen[0]], chosen[1])
        for call, chosen in enumerate(selected.call_rows)
        if chosen is not None
    ]
    return Complexity(
        len(ranges),
        len({count for _, count in ranges}),
        len({traits.sizes[n][row] for n, row, _ in here if copies[n].shadow_of is None}),
        sum(int(traits.dimensions[n][row]) for n, row, _ in here)
        + sum(int(traits.engine_dimensions[n][row]) for n, row in generated),
        sum(int(traits.odd[n][row]) for n, row, _ in here)
        + sum(int(traits.engine_odd[n][row]) for n, row in generated),
        sum(copies[n].shadow_of is not None for n, _, _ in here),
        sum(traits.sizes[n][row][-1] > 1 for n, row, _ in here),
    )


def least_complexity(space: SearchSpace) -> Complexity:
    """What no placement of a space is simpler than."""
    traits, copies = Traits.of(space), space.tables.copies
    homes = [n for n, copy in enumerate(copies) if copy.shadow_of is None]
    generated: dict[int, list[tuple[int, int]]] = {}
    for number, table in enumerate(space.tables.calls):
        if len(table):
            pair = (
                int(traits.engine_dimensions[number].min()),
                int(traits.engine_odd[number].min()),
            )
            generated.setdefault(table.call, []).append(pair)
    return Complexity(
        ranges=1,
        range_sizes=1,
        layouts=1,
        dimensions=sum(int(traits.dimensions[n].min()) for n in homes)
        + sum(min(each)[0] for each in generated.values()),
        odd_sizes=sum(int(traits.odd[n].min()) for n in homes)
        + sum(min(odd for _, odd in each) for each in generated.values()),
        shadows=0,
        interleaved_pipelines=sum(
            int(copies[n].layouts.virtual_pipeline_parallel_size.min() > 1) for n in homes
        ),
    )
