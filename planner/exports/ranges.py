"""Which GPUs a framework can put the roles of a plan on."""

import itertools
from collections.abc import Iterator

from automap.planner.exports.reasons import Broken
from automap.planner.exports.subject import Subject, overlap, same_range
from automap.planner.plan.types import CopyPlan


def range_refusals(subject: Subject) -> Iterator[Broken]:
    """Why a framework cannot give the roles their GPUs: pools, nodes, and who shares them."""
    yield from _sharing(subject)
    yield from _hardware(subject)
    yield from _nodes(subject)
    yield from _reward(subject)


def _sharing(subject: Subject) -> Iterator[Broken]:
    actor = subject.actor
    for copy in subject.trainers:
        if not same_range(copy, actor):
            found = f"GPUs {_gpus(copy)}, the actor {_gpus(actor)}"
            yield Broken("one_range", copy.role, found)
    for one, other in itertools.combinations(subject.trainers, 2):
        if overlap(one, other) and not same_range(one, other):
            found = f"GPUs {_gpus(one)}, the {other.role} {_gpus(other)}"
            yield Broken("partial_overlap", one.role, found)
    for copy in subject.shadows:
        shared = next((each for each in subject.trainers if overlap(each, copy)), None)
        if shared is not None:
            found = f"it generates on GPUs {_gpus(copy)}, {shared.role} has {_gpus(shared)}"
            yield Broken("overlap", copy.role, found)


def _hardware(subject: Subject) -> Iterator[Broken]:
    pools = {copy.pool: subject.pool(copy) for copy in subject.plan.copies}
    for one, other in itertools.pairwise(pools.values()):
        if (one.gpu.name, one.gpus_per_node) != (other.gpu.name, other.gpus_per_node):
            kinds = [f"{each.gpus_per_node} {each.gpu.name} a node" for each in (one, other)]
            found = f"{one.name} has {kinds[0]}, {other.name} {kinds[1]}"
            yield Broken("one_gpu_type", "cluster", found)


def _nodes(subject: Subject) -> Iterator[Broken]:
    copies = subject.plan.copies
    if len(subject.nodes(copies)) == 1:
        return
    for copy in copies:
        each = subject.pool(copy).gpus_per_node
        if copy.first_gpu % each or copy.num_gpus % each:
            found = f"GPUs {_gpus(copy)} of {copy.pool}, nodes of {each}"
            yield Broken("whole_nodes", copy.id, found)


def _reward(subject: Subject) -> Iterator[Broken]:
    reward = subject.reward
    if reward is None:
        return
    layout = reward.layout
    if (
        layout.pipeline_parallel_size * layout.context_parallel_size > 1
        or layout.sharding != "none"
    ):
        found = f"{layout.in_short()}, sharding {layout.sharding}"
        yield Broken("reward_layout", "reward", found)
    together = same_range(reward, subject.actor)
    others = [each for each in subject.plan.copies if each is not reward and overlap(each, reward)]
    if (others and not together) or (together and subject.apart):
        ids = ", ".join(each.id for each in others)
        yield Broken("reward_apart", "reward", f"GPUs {_gpus(reward)}, shared with {ids}")


def _gpus(copy: CopyPlan) -> str:
    return f"{copy.first_gpu}-{copy.first_gpu + copy.num_gpus - 1}"
