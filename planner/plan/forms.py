"""Whether a placement shares GPUs, sharding and offload in a way that a target has."""

from collections.abc import Iterator, Sequence

from automap.planner.job.job import Job
from automap.planner.plan.types import CopyPlacement, Placement
from automap.planner.targets.forms import Form
from automap.planner.targets.target import Target


def form_refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    """What a placement lacks for every way in which a target lets models share GPUs."""
    if any(engine.one_sharding for engine in target.training):
        yield from _sharding_refusals(job, placement, target)
    if not target.forms:
        return
    homes = {copy.role: copy for copy in placement.copies if copy.kind == "home"}
    stale = job.spec.search.staleness
    forms = [form for form in target.forms if form.suits(homes, staleness=stale)]
    lacks = [lack_of(job, placement, form) for form in forms]
    if None not in lacks:
        told = "; ".join(f"{form.name}: {why}" for form, why in zip(forms, lacks, strict=True))
        yield f"{target.name} has models share GPUs in one of these ways: {told}"


def lack_of(job: Job, placement: Placement, form: Form) -> str | None:
    """The first thing in which a placement has not the form; None: it has it."""
    homes = {copy.role: copy for copy in placement.copies if copy.kind == "home"}
    apart = any(copy.kind == "shadow" for copy in placement.copies)
    if apart != form.apart:
        return f"rollouts are {'on' if apart else 'not on'} GPUs of their own"
    for one, other in form.together(homes):
        if _range(homes[one]) != _range(homes[other]):
            return f"{one} and {other} are on different GPUs"
    for one, other in form.separate(homes):
        if _overlap(homes[one], homes[other]):
            return f"{one} and {other} share GPUs"
    trained = [role for role in homes if job.models[role].trainable]
    for role, allowed in form.offloads(homes, trained).items():
        if homes[role].offload not in allowed:
            return f"offload of {role} is {homes[role].offload}, not {' or '.join(sorted(allowed))}"
    return None


def _sharding_refusals(job: Job, placement: Placement, target: Target) -> Iterator[str]:
    homes = [copy for copy in placement.copies if copy.kind == "home"]
    trained = [copy for copy in homes if job.models[copy.role].trainable]
    scored = [copy for copy in homes if copy not in trained and _several(copy)]
    for what, values in (
        ("sharding", {copy.layout.sharding for copy in trained if _several(copy)}),
        ("offload", {copy.offload for copy in trained}),
    ):
        if len(values) > 1:
            told = " and ".join(sorted(values))
            yield f"models that train have {what} {told}, but {target.name} has one for all"
    yield from _whole_refusals([c for c in trained if _several(c)], scored, target)


def _whole_refusals(
    trained: Sequence[CopyPlacement], scored: Sequence[CopyPlacement], target: Target
) -> Iterator[str]:
    full = {copy.layout.sharding == "full" for copy in (*trained, *scored)}
    if len(full) > 1:
        ids = ", ".join(c.id for c in (*trained, *scored) if c.layout.sharding == "full")
        yield f"{ids} alone fully sharded, but {target.name} has all models so, or none"


def _several(copy: CopyPlacement) -> bool:
    return copy.layout.data_parallel_size * copy.layout.context_parallel_size > 1


def _range(copy: CopyPlacement) -> tuple[str, int, int]:
    return copy.pool, copy.first_gpu, copy.num_gpus


def _overlap(one: CopyPlacement, other: CopyPlacement) -> bool:
    ends = one.first_gpu + one.num_gpus, other.first_gpu + other.num_gpus
    return one.pool == other.pool and one.first_gpu < ends[1] and other.first_gpu < ends[0]
