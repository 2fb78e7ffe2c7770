"""Rules on memory: every GPU and host holds its copies and whatever runs there.

Bytes change along the GPU axis only where a range begins or ends, so the sweep looks at the
stretches between those points instead of at every GPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from automap.planner.catalogue.hardware import Pool
from automap.planner.check.subject import Span, Subject, span_of, sync_name
from automap.planner.cost.constants import HOST_SHARE
from automap.planner.cost.memory import usable_bytes
from automap.planner.cost.transition import model_bytes, sync_bucket_bytes
from automap.planner.plan.types import CopyPlan
from automap.planner.units import MIB


def mib_up(num_bytes: int) -> int:
    """Whole MiB that hold the bytes: demands are rounded up."""
    return -(-num_bytes // MIB)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of GPUs that the same copies lie on."""

    span: Span
    copies: tuple[CopyPlan, ...]

    @property
    def resident_mib(self) -> int:
        """MiB that the copies hold on each GPU, rounded up copy by copy."""
        return sum(mib_up(copy.resident_bytes) for copy in self.copies)


def exceeded_memory(subject: Subject) -> Iterator[str]:
    """Every stretch of GPUs whose device or host memory is too small, and false peaks."""
    yield from overfilled(subject)
    yield from _peaks_are_right(subject, list(_stretches(subject)))


def overfilled(subject: Subject) -> Iterator[str]:
    """Every stretch of GPUs whose device or host memory is too small."""
    for stretch in _stretches(subject):
        pool = subject.pools[stretch.span.pool]
        yield from _residents_fit(stretch, pool)
        yield from _calls_fit(subject, stretch, pool)
        yield from _syncs_fit(subject, stretch, pool)
        yield from _host_fits(stretch, pool)
    yield from _bases_fit(subject)


def _stretches(subject: Subject) -> Iterator[Stretch]:
    for name in subject.pools:
        spans = [span_of(copy) for copy in subject.plan.copies if copy.pool == name]
        points = sorted({point for span in spans for point in (span.first, span.end)})
        for first, end in pairwise(points):
            stretch = Span(name, first, end)
            copies = [copy for copy in subject.plan.copies if span_of(copy).shares_gpus(stretch)]
            if copies:
                yield Stretch(stretch, tuple(copies))


def _residents_fit(stretch: Stretch, pool: Pool) -> Iterator[str]:
    if stretch.resident_mib > usable_bytes(pool) // MIB:
        yield (
            f"copies {', '.join(copy.id for copy in stretch.copies)} hold "
            f"{_beside_capacity(stretch, pool, 0)}"
        )


def _calls_fit(subject: Subject, stretch: Stretch, pool: Pool) -> Iterator[str]:
    """Transient bytes of a call lie on every GPU of its copy, beside all residents."""
    for call, copy in subject.placed_calls():
        transient = mib_up(call.bytes_by_kind.total)
        runs_here = span_of(copy).shares_gpus(stretch.span)
        if runs_here and stretch.resident_mib + transient > usable_bytes(pool) // MIB:
            yield f"call {call.id} needs {_beside_capacity(stretch, pool, transient)}"


def _syncs_fit(subject: Subject, stretch: Stretch, pool: Pool) -> Iterator[str]:
    """A weight sync has a bucket on either side, two where the sides share a GPU."""
    for sync in subject.plan.transitions:
        sides = [span_of(copy) for copy in subject.sync_sides(sync)]
        touching = sum(side.shares_gpus(stretch.span) for side in sides)
        buckets = touching * mib_up(sync_bucket_bytes())
        if touching and stretch.resident_mib + buckets > usable_bytes(pool) // MIB:
            yield f"{sync_name(sync)} needs {_beside_capacity(stretch, pool, buckets)}"


def _beside_capacity(stretch: Stretch, pool: Pool, transient_mib: int) -> str:
    usable = usable_bytes(pool) // MIB
    total = stretch.resident_mib + transient_mib
    return (
        f"{total} MiB on GPUs {stretch.span} ({stretch.resident_mib} resident, {transient_mib} "
        f"transient), but {usable} MiB are usable: {total - usable} MiB too many"
    )


def _host_fits(stretch: Stretch, pool: Pool) -> Iterator[str]:
    """Host memory is shared evenly by a node's GPUs; a tenth is left for the software."""
    usable = int(HOST_SHARE * pool.host_memory_bytes / pool.gpus_per_node) // MIB
    needed = sum(mib_up(copy.host_bytes) for copy in stretch.copies)
    if needed > usable:
        yield (
            f"copies {', '.join(copy.id for copy in stretch.copies)} keep {needed} MiB of host "
            f"memory per GPU on {stretch.span}, but {usable} MiB are usable"
        )


def _bases_fit(subject: Subject) -> Iterator[str]:
    """An engine's part of the base that adapters are added to lies on the host of its GPUs."""
    for call, copy in subject.placed_calls():
        model, sizes = subject.job.models[copy.role], call.parallelism
        if model.lora_rank is None or sizes is None or subject.calls[call.id].kind != "generate":
            continue
        rest, experts = model_bytes(model, subject.job.spec.workload.precision)
        tensor, stages = sizes.tensor_parallel_size, sizes.pipeline_parallel_size
        kept = rest / tensor + experts / max(tensor, sizes.expert_parallel_size)
        if mib_up(int(kept / stages)) > mib_up(copy.host_bytes):
            yield (
                f"call {call.id} keeps {kept / stages / MIB:.0f} MiB of the base per GPU on the "
                f"host, but {copy.id} counts {mib_up(copy.host_bytes)} MiB"
            )


def _peaks_are_right(subject: Subject, stretches: list[Stretch]) -> Iterator[str]:
    for call, copy in subject.placed_calls():
        residents = max(
            sum(other.resident_bytes for other in stretch.copies)
            for stretch in stretches
            if span_of(copy).shares_gpus(stretch.span)
        )
        peak, capacity = residents + call.bytes_by_kind.total, usable_bytes(subject.pool_of(copy))
        if call.peak_bytes != peak:
            yield f"call {call.id} states a peak of {call.peak_bytes} bytes, but it is {peak}"
        if call.capacity_bytes != capacity:
            yield (
                f"call {call.id} states a capacity of {call.capacity_bytes} bytes, but {capacity} "
                "are usable"
            )
