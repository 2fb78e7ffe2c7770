"""Which plans DeepSpeed's ZeRO runs with one set of arguments, and who may share GPUs there."""

from collections.abc import Iterator
from itertools import combinations

from automap.planner.exports.reasons import Broken
from automap.planner.exports.subject import Subject, overlap, same_range
from automap.planner.plan.runs_with import too_many_sequences
from automap.planner.plan.types import CopyPlan
from automap.planner.targets.tables import TARGETS

STAGES = {"none": 0, "optimizer": 1, "gradient": 2, "full": 3}
"""Sharding of what trains → ZeRO's stage."""
SIZES = ("pipeline_parallel_size", "virtual_pipeline_parallel_size", "expert_parallel_size")


def homes_of(subject: Subject) -> list[CopyPlan]:
    """Homes of all models, which one set of arguments lays out."""
    return list(subject.homes.values())


def trained(subject: Subject) -> list[CopyPlan]:
    """Homes of models that train."""
    return [copy for copy in homes_of(subject) if subject.job.models[copy.role].trainable]


def stage_of(subject: Subject) -> int:
    """ZeRO's stage: what any model that has replicas is sharded as."""
    several = [copy for copy in trained(subject) if _several(copy)]
    if several:
        return STAGES[several[0].layout.sharding]
    scored = [copy for copy in homes_of(subject) if _several(copy)]
    return STAGES["full" if any(c.layout.sharding == "full" for c in scored) else "gradient"]


def zero_refusals(subject: Subject) -> Iterator[Broken]:
    """Why a plan is not one of this framework's forms, shardings and sizes."""
    yield from _sizes(subject)
    yield from _sharding(subject)
    yield from _offload(subject)
    yield from _forms(subject)
    yield from _server(subject)
    yield from _sequences(subject)


def _sizes(subject: Subject) -> Iterator[Broken]:
    actor = subject.actor.layout
    for copy in homes_of(subject):
        layout = copy.layout
        if any(getattr(layout, size) > 1 for size in SIZES):
            yield Broken("zero_sizes", copy.role, layout.in_short())
        if layout.tensor_parallel_size * layout.context_parallel_size > 1:
            yield Broken("data_only", copy.role, layout.in_short())
        for size in ("tensor_parallel_size", "context_parallel_size"):
            own, its = getattr(layout, size), getattr(actor, size)
            if own != its:
                yield Broken("one_layout", copy.role, f"{size} is {own}, the actor's {its}")
        train = subject.call(copy.role, "train")
        if train is not None and train.recompute == "selective":
            yield Broken("zero_recompute", copy.role, "recompute selective")


def _sharding(subject: Subject) -> Iterator[Broken]:
    stage, training = stage_of(subject), trained(subject)
    for copy in homes_of(subject):
        sharding = copy.layout.sharding
        wanted = stage if copy in training else STAGES["full"] if stage == STAGES["full"] else 0
        if _several(copy) and STAGES[sharding] != wanted:
            yield Broken("one_stage", copy.role, f"sharding {sharding} under ZeRO {stage}")


def _offload(subject: Subject) -> Iterator[Broken]:
    training = trained(subject)
    for copy in homes_of(subject):
        if copy not in training and copy.offload != "none":
            yield Broken("scoring_offload", copy.role, f"offload {copy.offload}")
        if copy in training and copy.offload == "weights":
            yield Broken("one_offload", copy.role, "offload weights")
        if copy in training and copy.offload == "optimizer":
            yield Broken("offload_optimizer", copy.role, "offload optimizer")
    together = all(same_range(copy, training[0]) for copy in training)
    for copy in training if len(training) > 1 else ():
        if copy.offload == ("none" if together else "optimizer"):
            where = "on one range" if together else "on several ranges"
            yield Broken("sleep", copy.role, f"offload {copy.offload}, {where}")


def _forms(subject: Subject) -> Iterator[Broken]:
    for one, other in combinations(subject.plan.copies, 2):
        if overlap(one, other) and not same_range(one, other):
            found = f"GPUs {_gpus(one)}, {other.id} {_gpus(other)}"
            yield Broken("overlap", one.id, found)
    pairs = _crossing(subject) if subject.apart else _apart(subject)
    for one, other, found in pairs:
        yield Broken("forms", one.role, f"it {found} {other.role}")


def _apart(subject: Subject) -> Iterator[tuple[CopyPlan, CopyPlan, str]]:
    """With generation on the actor's GPUs: homes that are not where they have to be."""
    homes, told = subject.homes, "does not share GPUs with"
    actor, critic = subject.actor, subject.homes.get("critic")
    if "reference" in homes and not same_range(homes["reference"], actor):
        yield homes["reference"], actor, told
    if "reward" in homes:
        beside = actor if critic is None else critic
        if not same_range(homes["reward"], beside):
            yield homes["reward"], beside, told


def _crossing(subject: Subject) -> Iterator[tuple[CopyPlan, CopyPlan, str]]:
    """With generation apart: models of different pairs that share GPUs, and shadows."""
    homes = homes_of(subject)
    yield from (
        (shadow, home, "generates on GPUs of")
        for shadow in subject.shadows
        for home in homes
        if overlap(shadow, home)
    )
    if subject.job.spec.search.staleness and all(same_range(c, homes[0]) for c in homes):
        return
    first = [copy for copy in homes if copy.role in ("actor", "reference")]
    for other in homes:
        for copy in first if other not in first else ():
            if overlap(copy, other):
                yield other, copy, "shares GPUs with"


def _sequences(subject: Subject) -> Iterator[Broken]:
    """More sequences at once than an engine runs, where the price knows nothing of that."""
    for target in TARGETS.values():
        for call in subject.generations if target.name == subject.framework.target else ():
            each = too_many_sequences(subject.job, call, target)
            if each is not None:
                yield Broken("engine_sequences", call.id, f"{each} sequences on an engine")


def _server(subject: Subject) -> Iterator[Broken]:
    for copy in subject.shadows:
        nodes, data = len(subject.nodes([copy])), copy.layout.data_parallel_size
        if nodes > 1:
            yield Broken("one_server", copy.id, f"it is on {nodes} nodes")
        if data > 1 and subject.job.models[copy.role].architecture.num_experts:
            yield Broken("one_server", copy.id, f"{data} replicas of a mixture of experts")


def _several(copy: CopyPlan) -> bool:
    return copy.layout.data_parallel_size * copy.layout.context_parallel_size > 1


def _gpus(copy: CopyPlan) -> str:
    return f"{copy.first_gpu}-{copy.first_gpu + copy.num_gpus - 1}"
