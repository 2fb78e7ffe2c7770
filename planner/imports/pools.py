"""The GPUs of a launch: of what trains, of the rollout and of the reward model, in that order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automap.planner import catalogue
from automap.planner.catalogue.hardware import NodeType

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
    given = [each for each in (trainer, rollout, reward) if each is not None]
    together = sum(each.num_gpus for each in given) <= node.gpus_per_node
    each_node = 1 if together else max(each.gpus_per_node for each in given)
    found, free = list[Range | None](), 0
    for each in (trainer, rollout, reward):
        first = -(-free // each_node) * each_node
        found.append(None if each is None else replace(each, first_gpu=first))
        free = free if each is None else first + each.num_gpus
    return Pools(found[0] or trainer, found[1], found[2])


def node_of(gpu: str) -> NodeType:
    """The usual node of a GPU type.

    Raises:
        SpecError: the catalogue has no such GPU type.
    """
    return catalogue.node_type(catalogue.gpu_type(gpu, field="gpu").node)
