"""Differences between placements in a few words."""

from itertools import combinations

from automap.planner.plan.types import (
    CallPlacement,
    CopyPlacement,
    GenerationTail,
    Parallelism,
    Placement,
)
from automap.planner.units import GIB


def sizes(layout: Parallelism | None) -> str:
    """A layout in short, tp8 pp2 dp8; empty where there is none."""
    return "" if layout is None else layout.in_short()


def difference(plan: Placement, other: Placement, *, positions: bool = True) -> str:
    """What another placement does otherwise: who shares GPUs, copies, then calls.

    `positions` also names the GPUs of copies that only move.
    """
    mine = {copy.id: copy for copy in plan.copies}
    theirs = {copy.id: copy for copy in other.copies}
    parts = [f"no {name}" for name in mine if name not in theirs]
    before, after = _sharing(plan), _sharing(other)
    both = {
        pair for pair in before ^ after if all(name in mine and name in theirs for name in pair)
    }
    for one, two in sorted(both):
        parts.append(f"{one} and {two} {'together' if (one, two) in after else 'apart'}")
    for name, copy in theirs.items():
        if name not in mine:
            parts.append(f"{name} on {copy.num_gpus} GPUs ({sizes(copy.layout)})")
        elif change := _copy_change(mine[name], copy, positions=positions):
            parts.append(f"{name} {change}")
    calls = {call.id: call for call in plan.calls}
    for call in other.calls:
        if change := _call_change(calls[call.id], call):
            parts.append(f"{call.id} {change}")
    return "; ".join(parts) or "the same layouts in another order"


def _sharing(placement: Placement) -> set[tuple[str, str]]:
    """Pairs of copies that share GPUs."""
    return {
        (min(one.id, two.id), max(one.id, two.id))
        for one, two in combinations(placement.copies, 2)
        if one.pool == two.pool
        and one.first_gpu < two.first_gpu + two.num_gpus
        and two.first_gpu < one.first_gpu + one.num_gpus
    }


def _copy_change(one: CopyPlacement, other: CopyPlacement, *, positions: bool) -> str:
    changes = []
    if (one.pool, one.num_gpus) != (other.pool, other.num_gpus):
        pool = f" of {other.pool}" if one.pool != other.pool else ""
        changes.append(f"on {other.num_gpus} GPUs{pool} instead of {one.num_gpus}")
    elif positions and one.first_gpu != other.first_gpu:
        changes.append(f"from GPU {other.first_gpu} instead of {one.first_gpu}")
    if sizes(one.layout) != sizes(other.layout):
        changes.append(f"{sizes(other.layout)} instead of {sizes(one.layout)}")
    for name in ("sharding", "offload"):
        before = getattr(one if name == "offload" else one.layout, name)
        after = getattr(other if name == "offload" else other.layout, name)
        if before != after:
            changes.append(f"{name} {after} instead of {before}")
    return ", ".join(changes)


def _call_change(one: CallPlacement, other: CallPlacement) -> str:
    changes = []
    if one.copy_id != other.copy_id:
        changes.append(f"on {other.copy_id}")
    if one.kind == "generate" and sizes(one.parallelism) != sizes(other.parallelism):
        changes.append(f"{sizes(other.parallelism)} instead of {sizes(one.parallelism)}")
    if one.tail != other.tail:
        changes.append(_tail(other.tail))
    if one.micro_batch_size != other.micro_batch_size:
        changes.append(f"micro-batch {other.micro_batch_size} instead of {one.micro_batch_size}")
    if one.recompute != other.recompute:
        changes.append(f"recompute {other.recompute} instead of {one.recompute}")
    if one.kv_cache_bytes != other.kv_cache_bytes:
        before, after = (f"{(c.kv_cache_bytes or 0) / GIB:.1f}" for c in (one, other))
        changes.append(f"{after} GiB of cache instead of {before}")
    return ", ".join(changes)


def _tail(tail: GenerationTail | None) -> str:
    if tail is None:
        return "without a tail"
    tensor = tail.tensor_parallel_size
    size = f"on {tail.num_gpus} GPUs" if tensor is None else f"with tp{tensor}"
    return f"{size} after {tail.ended_share:g} of the responses"
