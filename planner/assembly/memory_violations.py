"""Memory violations of a priced placement, as reasons with bytes; in whole MiB as in the search."""

from collections.abc import Iterator

import numpy as np

from automap.planner.assembly.parts import PricedCall, PricedCopy
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import memory
from automap.planner.cost.constants import HOST_SHARE
from automap.planner.cost.transition import base_copy_bytes, sync_bucket_bytes
from automap.planner.errors import Reason
from automap.planner.job.job import Job
from automap.planner.layout import GenerationLayouts
from automap.planner.units import GIB, MIB


def overflows(job: Job, copies: list[PricedCopy], calls: list[PricedCall]) -> list[Reason]:
    """A reason for everything that does not fit on some GPU or host, residents first.

    What copies hold and what calls add is rounded up to MiB one by one, capacity down.
    """
    found = []
    for pool in job.pools:
        members = [copy for copy in copies if copy.pool.name == pool.name]
        found += [*_residents(members, pool), *_hosts(members, pool)]
    found += [*_calls(copies, calls), *_engine_bases(job, copies, calls), *_syncs(copies)]
    return found


def _residents(members: list[PricedCopy], pool: Pool) -> Iterator[Reason]:
    """Reasons where copies alone exceed the memory of a GPU.

    What they hold only rises where a range starts, so only such GPUs are looked at.
    """
    worst = max((copy.span.start for copy in members), key=lambda g: _held(members, g), default=0)
    names = ", ".join(copy.placement.id for copy in members if worst in copy.span)
    what = f"what copies {names} hold through the iteration takes"
    yield from _over(what, _held(members, worst), _capacity(pool))


def _hosts(members: list[PricedCopy], pool: Pool) -> Iterator[Reason]:
    needed = max(
        (
            sum(mib_up(copy.host_bytes) for copy in members if start in copy.span)
            for start in (copy.span.start for copy in members)
        ),
        default=0,
    )
    usable = int(HOST_SHARE * pool.host_memory_bytes / pool.gpus_per_node) // MIB
    what = f"pool {pool.name}: offloaded state and pinned copies take host memory of"
    yield from _over(what, needed, usable)


def _calls(copies: list[PricedCopy], calls: list[PricedCall]) -> Iterator[Reason]:
    """Reasons where a call's transient bytes do not fit beside the residents of a GPU."""
    by_id = {copy.placement.id: copy for copy in copies}
    for call in calls:
        if call.placement.copy_id is not None:
            own, name = by_id[call.placement.copy_id], call.placement.id
            needed = mib_up(call.bytes_by_kind.total) + max(
                _held(copies, gpu) for gpu in _points(copies, own)
            )
            what = f"{name} and what is held beside it take"
            yield from _over(what, needed, _capacity(own.pool), phase=name)


def _engine_bases(job: Job, copies: list[PricedCopy], calls: list[PricedCall]) -> Iterator[Reason]:
    """Reasons where an engine's part of a LoRA base is more than is counted on its host."""
    by_id = {copy.placement.id: copy for copy in copies}
    generating = {call.id for call in job.dataflow.calls if call.kind == "generate"}
    for call in calls:
        own, sizes = by_id.get(call.placement.copy_id or ""), call.placement.parallelism
        if own is None or sizes is None or call.placement.id not in generating:
            continue
        engine = GenerationLayouts(
            *(np.array([getattr(sizes, name)]) for name in GenerationLayouts.__dataclass_fields__)
        )
        model = job.models[own.placement.role]
        kept = mib_up(int(base_copy_bytes(model, job.spec.workload, engine.layouts())[0]))
        usable = memory.usable_host_bytes(own.pool) // MIB
        what = f"{call.placement.id}: the base that adapters are added to takes host memory of"
        yield from _over(what, kept, usable, phase=call.placement.id)


def _syncs(copies: list[PricedCopy]) -> Iterator[Reason]:
    """Reasons where the buckets of a weight sync do not fit: one per side, two on a shared GPU."""
    bucket = mib_up(sync_bucket_bytes())
    homes = {copy.placement.role: copy for copy in copies if copy.placement.kind == "home"}
    for shadow in (copy for copy in copies if copy.placement.kind == "shadow"):
        sides = [homes[shadow.placement.role], shadow]
        over = [
            (needed - _capacity(side.pool), needed, _capacity(side.pool))
            for side in sides
            for gpu in _points(copies, side)
            for needed in [_held(copies, gpu) + bucket * sum(gpu in s.span for s in sides)]
        ]
        _, needed, usable = max(over)
        name = f"{sides[0].placement.id} → {shadow.placement.id}"
        yield from _over(f"the weight sync {name} and what is held beside it take", needed, usable)


def _points(copies: list[PricedCopy], own: PricedCopy) -> set[int]:
    """The first GPU of a copy, and every GPU of it where another begins: residents rise there."""
    return {copy.span.start for copy in copies if copy.span.start in own.span}


def _held(copies: list[PricedCopy], gpu: int) -> int:
    return sum(mib_up(copy.resident_bytes) for copy in copies if gpu in copy.span)


def _capacity(pool: Pool) -> int:
    return memory.usable_bytes(pool) // MIB


def _over(what: str, needed: int, usable: int, *, phase: str | None = None) -> Iterator[Reason]:
    """A reason when `needed` MiB exceed `usable` MiB."""
    if needed > usable:
        yield Reason(
            summary=(
                f"{what} {needed * MIB / GIB:.2f} GiB per GPU; {usable * MIB / GIB:.2f} GiB are "
                "usable"
            ),
            phase=phase,
            required_bytes=needed * MIB,
            capacity_bytes=usable * MIB,
            over_bytes=(needed - usable) * MIB,
        )


def mib_up(num_bytes: int) -> int:
    """Whole MiB that hold the bytes."""
    return -(-num_bytes // MIB)
