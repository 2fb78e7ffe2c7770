"""The GPUs of a launch: of what trains, of the rollout and of the reward model, in that order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automap.planner import catalogue
from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.settings import Settings

MAX_GPUS = 10**6


@dataclass(frozen=True, slots=True)
class Range:
    """GPUs of one pool of a framework."""

    num_nodes: int
    gpus_per_node: int
    first_gpu: int = 0

    @property
    def num_gpus(self) -> int:
        """All of them."""
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Pools:
    """A framework's pools as ranges of one pool of ours."""

    trainer: Range
    rollout: Range | None
    """GPUs that only generate; None: the actor's generate."""
    reward: Range | None
    """GPUs of the reward model; None: it is on the trainer's, or there is none."""
    others: tuple[Range, ...] = ()
    """GPUs of further models, where each may have its own."""

    @property
    def apart(self) -> bool:
        """Whether generation has GPUs of its own."""
        return self.rollout is not None

    @property
    def ranges(self) -> list[Range]:
        """All that there are, in the order in which they take GPUs."""
        named = [each for each in (self.trainer, self.rollout, self.reward) if each is not None]
        return [*named, *self.others]

    def spec(self, gpu: str, node: NodeType) -> dict[str, Any]:
        """The cluster as a spec says it."""
        found: dict[str, Any] = {"name": "gpus", "gpu": gpu}
        end, usual = max(each.first_gpu + each.num_gpus for each in self.ranges), node.gpus_per_node
        if end <= usual and all(each.num_nodes == 1 for each in self.ranges):
            return found | {"num_nodes": 1}
        each = max(each.gpus_per_node for each in self.ranges)
        found["num_nodes"] = -(-end // each)
        return found if each == usual else found | {"gpus_per_node": each}


@dataclass(frozen=True, slots=True)
class Groups:
    """Where each model is, where models may have GPUs of their own."""

    pools: Pools
    homes: Mapping[str, Range]


def lined_up(given: Sequence[Range], node: NodeType) -> list[Range]:
    """Ranges behind one another: on one node if it has room for all, else each begins a node."""
    together = sum(each.num_gpus for each in given) <= node.gpus_per_node
    each_node = 1 if together else max(each.gpus_per_node for each in given)
    found, free = list[Range](), 0
    for each in given:
        first = -(-free // each_node) * each_node
        found.append(replace(each, first_gpu=first))
        free = first + each.num_gpus
    return found


def behind_one_another(
    trainer: Range, rollout: Range | None, reward: Range | None, node: NodeType
) -> Pools:
    """The pools as ranges: on one node if it has room for all, else each begins a node."""
    placed = iter(lined_up([e for e in (trainer, rollout, reward) if e is not None], node))
    return Pools(
        next(placed),
        None if rollout is None else next(placed),
        None if reward is None else next(placed),
    )


def range_of(settings: Settings, role: str) -> Range:
    """The GPUs that a launch gives a model, by its nodes and the GPUs of each."""
    nodes, each = settings.size("nodes", role), settings.size("gpus_per_node", role)
    if nodes * each > MAX_GPUS:
        told = f"{settings.where('nodes', role)}: {nodes} nodes of {each} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        return Range(1, 1)
    return Range(nodes, each)


def grouped(
    sizes: Mapping[str, Range],
    sets: Sequence[Sequence[str]],
    rollout: Range | None,
    node: NodeType,
) -> Groups:
    """Sets of models that share GPUs behind one another, and what only generates after them.

    Args:
        sizes: GPUs of each model; a set is where its first is.
        sets: Models by set, the actor's first.
        rollout: GPUs that only generate; None: the actor's do.
        node: The usual node of these GPUs.
    """
    first = [sizes[members[0]] for members in sets]
    placed = lined_up([*first, *([] if rollout is None else [rollout])], node)
    homes = {
        role: replace(sizes[role], first_gpu=at.first_gpu)
        for members, at in zip(sets, placed, strict=False)
        for role in members
    }
    apart = None if rollout is None else placed[-1]
    return Groups(Pools(placed[0], apart, None, tuple(placed[1 : len(sets)])), homes)


def node_of(gpu: str) -> NodeType:
    """The usual node of a GPU type.

    Raises:
        SpecError: the catalogue has no such GPU type.
    """
    return catalogue.node_type(catalogue.gpu_type(gpu, field="gpu").node)
