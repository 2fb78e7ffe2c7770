"""Which targets run a placement, and what the others lack: the tables applied to one placement."""

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.job.job import Job
from automap.planner.job.targets import refusal
from automap.planner.layout import OFFLOADS, SHARDINGS, GenerationLayouts, Layouts
from automap.planner.plan.forms import form_refusals
from automap.planner.plan.types import (
    CallPlacement,
    CallPlan,
    CopyPlacement,
    Parallelism,
    Placement,
)
from automap.planner.targets.capabilities import Rule
from automap.planner.targets.tables import ANY, TARGETS
from automap.planner.targets.target import Target


def can_be_told(job: Job, placement: Placement) -> list[str]:
    """Names of the targets that lack nothing for a placement; `any` is no software, so not named.

    Whether it fits into memory with the software of each is another question.
    """
    return [
        name
        for name, target in TARGETS.items()
        if target is not ANY and not refusals(job, placement, target)
    ]


def refusals(job: Job, placement: Placement, target: Target) -> list[str]:
    """What a target lacks for a placement, a sentence each; empty where it runs it."""
    refused = refusal(target, job.spec, job.dataflow, job.models)
    if refused is not None:
        return [f"{refused[0]}: {refused[1]}"]
    return list(_refusals(job, placement, target))


def engine_name(job: Job, copy: CopyPlacement, target: Target) -> str | None:
    """The target's engine that trains or scores a home; None: no engine does, or it is a shadow."""
    if copy.kind == "shadow":
        return None
    engines = job.engines_of(copy.role, target)
    number = int(engines.of_layouts(layout_row(copy.layout, copy.offload))[0])
    return engines.engines[number].name if number >= 0 else None


def home_refusals(
    job: Job, copy: CopyPlacement, target: Target, *, engine: str | None = None
) -> list[str]:
    """What keeps a target's engines, or the one that is named, from running a home; empty: none."""
    engines = job.engines_of(copy.role, target)
    if engine is not None:
        engines = engines.only(engine)
    if not engines.engines:
        return [f"{engine or target.name} does not know the model of {copy.role}"]
    return engines.refusals(layout_row(copy.layout, copy.offload))


def _refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    for copy in placement.copies:
        if copy.kind == "home":
            lacks = home_refusals(job, copy, target)
            if lacks:
                yield f"copy {copy.id} ({_in_words(copy.layout)}): {'; '.join(lacks)}"
        else:
            yield from _rollout_refusals(job, f"copy {copy.id}", copy.role, copy.layout, target)
    for call in placement.calls:
        if call.kind == "generate" and call.parallelism is not None:
            yield from _rollout_refusals(
                job, f"call {call.id}", _role_of(call, placement), call.parallelism, target
            )
        if call.tail is not None and not target.tails:
            wide = call.tail.tensor_parallel_size is not None
            field = "generation_tensor_schedule" if wide else "generation_tail"
            yield f"search.{field}: call {call.id} has a tail, which {target.name} does not know"
        each = too_many_sequences(job, call, target)
        if each is not None:
            most = target.rollout.max_sequences
            yield f"call {call.id}: {each} sequences on an engine, which runs {most} at once"
    yield from _range_refusals(placement, target)
    yield from _process_refusals(job, placement, target)
    yield from form_refusals(job, placement, target)
    yield from _rollout_place_refusals(job, placement, target)
    yield from _engine_refusals(placement, target)
    for copy in placement.copies:
        yield from _copy_refusals(job, copy, target)
    yield from _call_refusals(job, placement, target)
    yield from _shared_refusals(placement, target)
    yield from _role_refusals(placement, target)


def _copy_refusals(job: Job, copy: CopyPlacement, target: Target) -> Iterator[str]:
    """What of one copy's range and ranks a target does not take."""
    row = layout_row(copy.layout, copy.offload)
    is_shadow, pool = copy.kind == "shadow", _pool_of(job, copy)
    trains = not is_shadow and job.models[copy.role].trainable
    rules = list(job.range_rules(pool, row, trains=trains, target=target, is_shadow=is_shadow))
    if is_shadow:
        engines = GenerationLayouts.of(row)
        rules += target.engine_rules(engines, pool=pool)
        architecture = job.models[copy.role].architecture
        rules += target.server_rules(architecture, engines, pool=pool)
    yield from _broken(f"copy {copy.id} ({_in_words(copy.layout)})", target.name, rules)


def _broken(name: str, who: str, rules: Iterable[Rule]) -> Iterator[str]:
    broken = [words for words, holds in rules if not holds.all()]
    if broken:
        yield f"{name}: {who} needs: {', '.join(broken)}"


def _pool_of(job: Job, copy: CopyPlacement) -> Pool:
    return next(pool for pool in job.pools if pool.name == copy.pool)


def _call_refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    homes = {copy.id: copy for copy in placement.copies}
    flow = {call.id: call for call in job.dataflow.calls}
    for call in placement.calls:
        copy = homes.get(call.copy_id or "")
        if copy is not None and call.micro_batch_size and target.even_batches:
            batch = job.scored_together(flow[call.id])
            rows = copy.layout.data_parallel_size * call.micro_batch_size
            if batch % rows:
                yield f"call {call.id}: {rows} sequences at once do not divide {batch}"
        if copy is not None and call.kind == "generate" and call.parallelism is not None:
            engine_row = GenerationLayouts.of(layout_row(call.parallelism, "none"))
            rules = target.engine_rules(engine_row, pool=_pool_of(job, copy))
            yield from _broken(f"call {call.id}", target.name, rules)
            if target.offloads_to_generate and copy.kind == "home" and copy.offload != "weights":
                yield f"call {call.id}: {target.name} generates while {copy.id} is on the host"
        if call.kind != "train" or copy is None:
            continue
        name = engine_name(job, copy, target)
        engine = next((each for each in target.training if each.name == name), None)
        if engine is not None and (call.recompute or "none") not in engine.recomputes:
            yield f"call {call.id}: {name} has no recompute {call.recompute}"


def _shared_refusals(placement: Placement, target: Target) -> Iterator[str]:
    """Calls of a kind that a target has one setting for, and that differ."""
    first: dict[str, CallPlacement] = {}
    for call in placement.calls if target.shared_settings else ():
        if call.kind == "generate" or not call.micro_batch_size:
            continue
        one = first.setdefault("train" if target.one_micro_batch else call.kind, call)
        alike = one.kind == call.kind
        for field in ("micro_batch_size", "recompute") if alike else ("micro_batch_size",):
            if getattr(one, field) != getattr(call, field):
                values = f"{getattr(one, field)} and {getattr(call, field)}"
                yield f"calls {one.id} and {call.id}: {target.name} has one {field}, not {values}"


def _role_refusals(placement: Placement, target: Target) -> Iterator[str]:
    """Calls of a model that differ in what a target has one setting for."""
    first: dict[str, CallPlacement] = {}
    for call in placement.calls if target.settings_of_role else ():
        if call.kind == "generate" or not call.micro_batch_size or call.copy_id is None:
            continue
        one = first.setdefault(call.copy_id, call)
        if one.micro_batch_size != call.micro_batch_size:
            values = f"{one.micro_batch_size} and {call.micro_batch_size}"
            yield (
                f"calls {one.id} and {call.id}: {target.name} has one micro_batch_size for a "
                f"model, not {values}"
            )


def _range_refusals(placement: Placement, target: Target) -> Iterator[str]:
    """Pairs of copies whose ranges share GPUs otherwise than the target lets them."""
    for one, other in combinations(placement.copies, 2):
        first, second = (
            set(range(copy.first_gpu, copy.first_gpu + copy.num_gpus)) for copy in (one, other)
        )
        if one.pool != other.pool or not first & second or first == second:
            continue
        inside = first < second or second < first
        if target.ranges == "equal" or (target.ranges == "nested" and not inside):
            allowed = "equal or disjoint" + (" or nested" if target.ranges == "nested" else "")
            yield (
                f"copies {one.id} and {other.id}: GPUs {_gpus(one)} and {_gpus(other)} of pool "
                f"{one.pool}, but {target.name} needs ranges that are {allowed}"
            )


def _process_refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    """Pairs of models that a target has in one process, but that differ in what that has once."""
    homes = [
        copy
        for copy in placement.copies
        if copy.kind == "home" and copy.role in target.process_roles | target.alike_roles
    ]
    for one, other in combinations(homes, 2):
        in_one = {one.role, other.role} <= target.process_roles
        what = "in one process" if in_one else "by one set of settings"
        both = f"copies {one.id} and {other.id} are {what} of {target.name}, but"
        if in_one and (one.pool, one.first_gpu, one.num_gpus) != (
            other.pool,
            other.first_gpu,
            other.num_gpus,
        ):
            yield f"{both} lie on GPUs {_gpus(one)} and {_gpus(other)}"
        engines = [engine_name(job, copy, target) for copy in (one, other)]
        if engines[0] != engines[1]:
            first, second = (engine or "no engine of it" for engine in engines)
            yield f"{both} are run by {first} and by {second}"
            continue
        sizes = next((e.process_dimensions for e in target.training if e.name == engines[0]), ())
        if not all(job.models[copy.role].trainable for copy in (one, other)):
            sizes = tuple(size for size in sizes if size != "virtual_pipeline")
        for size in sizes:
            first, second = (getattr(c.layout, f"{size}_parallel_size") for c in (one, other))
            if first != second:
                yield f"{both} have {size}_parallel_size {first} and {second}"


def _rollout_place_refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    """Rollouts on GPUs on which a target does not generate."""
    for shadow in placement.copies if target.shadows_apart else ():
        for other in placement.copies:
            if shadow.kind == "shadow" and other is not shadow and _share_gpus(shadow, other):
                yield (
                    f"copies {shadow.id} and {other.id} share GPUs, but rollouts of {target.name} "
                    "are on the GPUs that train or on GPUs of their own"
                )
        if shadow.kind == "shadow":
            yield from _served_refusals(placement, target)
    kinds = {copy.id: copy.kind for copy in placement.copies}
    if "shadow" in kinds.values() and job.spec.algorithm in target.not_apart:
        yield f"{job.spec.algorithm} with rollouts on GPUs of their own"
    if "shadow" in kinds.values() and target.one_epoch_apart and job.spec.workload.epochs > 1:
        yield f"{job.spec.workload.epochs} epochs with rollouts on GPUs of their own"
    stale = target.stale_rollouts_apart and job.spec.search.staleness > 0
    for call in placement.calls if stale or target.rollouts_apart else ():
        if call.kind == "generate" and kinds.get(call.copy_id or "") == "home":
            when = "" if target.rollouts_apart else "with search.staleness "
            yield (
                f"call {call.id} is on the GPUs that train, but {when}{target.name} generates on "
                "GPUs of their own"
            )


def _engine_refusals(placement: Placement, target: Target) -> Iterator[str]:
    """Generations of one model that a target has one engine for, but that need two."""
    first: dict[str, CallPlacement] = {}
    for call in placement.calls if target.one_engine else ():
        if call.kind != "generate":
            continue
        one = first.setdefault(call.role, call)
        for field in ("copy_id", "parallelism", "kv_cache_bytes"):
            if getattr(one, field) != getattr(call, field):
                yield (
                    f"calls {one.id} and {call.id} differ in {field}, but {target.name} has one "
                    "engine for both"
                )


def _served_refusals(placement: Placement, target: Target) -> Iterator[str]:
    """Models that are served on GPUs that train, while rollouts are elsewhere."""
    others = [copy for copy in placement.copies if copy.role not in target.served_roles]
    for copy in placement.copies:
        sharing = [each.id for each in others if _share_gpus(copy, each)]
        if copy not in others and sharing:
            yield (
                f"copies {copy.id} and {sharing[0]} share GPUs, but with rollouts on GPUs of "
                f"their own {target.name} serves {copy.role} on GPUs of its own too"
            )


def _share_gpus(one: CopyPlacement, other: CopyPlacement) -> bool:
    return (
        one.pool == other.pool
        and one.first_gpu < other.first_gpu + other.num_gpus
        and other.first_gpu < one.first_gpu + one.num_gpus
    )


def _gpus(copy: CopyPlacement) -> str:
    return f"{copy.first_gpu} to {copy.first_gpu + copy.num_gpus - 1}"


def _role_of(call: CallPlacement, placement: Placement) -> str:
    return next(copy.role for copy in placement.copies if copy.id == call.copy_id)


def too_many_sequences(job: Job, call: CallPlacement | CallPlan, target: Target) -> int | None:
    """Sequences on an engine of a generate call, where a target's engines run fewer at once.

    None: they run so many, or the price knows of their limit.
    """
    most, layout = target.rollout.max_sequences, call.parallelism
    if most is None or job.target.rollout.max_sequences is not None or call.kind != "generate":
        return None
    each = -(-job.spec.workload.num_sequences // (layout.data_parallel_size if layout else 1))
    return each if each > most else None


def _rollout_refusals(
    job: Job, name: str, role: str, layout: Parallelism, target: Target
) -> Iterator[str]:
    row = GenerationLayouts.of(layout_row(layout, "none"))
    rules = target.rollout.rules(job.models[role].architecture, row)
    engines = " or ".join(sorted(target.rollout.names))
    yield from _broken(f"{name} ({_in_words(layout)})", engines, rules)


def _in_words(layout: Parallelism) -> str:
    return f"{layout.in_short()}, sharding {layout.sharding}"


def layout_row(layout: Parallelism, offload: str) -> Layouts:
    """The layout of a copy, or of an engine, as columns of one row."""
    sizes = (
        layout.num_gpus,
        layout.tensor_parallel_size,
        layout.pipeline_parallel_size,
        layout.virtual_pipeline_parallel_size,
        layout.context_parallel_size,
        layout.data_parallel_size,
        layout.expert_parallel_size,
        SHARDINGS.index(layout.sharding),
        OFFLOADS.index(offload),
    )
    return Layouts(*(np.array([size], dtype=np.int64) for size in sizes))
