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
    of_node: int | None = None
    """GPUs of a node, where ranges may take a part of one; None: as many as the largest range has
    on each of its nodes."""

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
        if self.of_node is not None:
            sizes = {} if self.of_node == usual else {"gpus_per_node": self.of_node}
            return found | {"num_nodes": -(-end // self.of_node)} | sizes
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


def packed(given: Sequence[Range], of_node: int) -> list[Range]:
    """Ranges on the first nodes with room for them, as Ray packs them; large ones begin a node."""
    used, found = list[int](), list[Range]()
    for each in given:
        size = each.num_gpus
        fits = (n for n, taken in enumerate(used) if taken + size <= of_node)
        at = next(fits, len(used))
        if at == len(used):
            whole, rest = divmod(size, of_node)
            found.append(replace(each, first_gpu=at * of_node))
            used += [of_node] * whole + [rest] * (rest > 0)
        else:
            found.append(replace(each, first_gpu=at * of_node + used[at]))
            used[at] += size
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
    of_node: int | None,
    node: NodeType,
) -> Groups:
    """Sets of models that share GPUs, and what only generates, packed onto nodes in this order.

    Args:
        sizes: GPUs of each model; a set is where its first is.
        sets: Models by set, the actor's first.
        rollout: GPUs that only generate; None: the actor's do.
        of_node: GPUs of a node; None: as the usual node has, or what is asked for of one where that
            is more, or all that there are where these are less.
        node: The usual node of these GPUs.
    """
    first = [sizes[members[0]] for members in sets]
    ranges = [*first, *([] if rollout is None else [rollout])]
    if of_node is None:
        most = max(node.gpus_per_node, *(each.gpus_per_node for each in ranges))
        of_node = min(most, sum(each.num_gpus for each in ranges))
    placed = packed(ranges, of_node)
    homes = {
        role: replace(sizes[role], first_gpu=at.first_gpu)
        for members, at in zip(sets, placed, strict=False)
        for role in members
    }
    apart = None if rollout is None else placed[-1]
    others = tuple(placed[1 : len(sets)])
    return Groups(Pools(placed[0], apart, None, others, of_node), homes)


def node_size(settings: Settings, stated: int | None, sizes: Mapping[str, Range]) -> int | None:
    """The GPUs of a node that the user states; None: he does not, or it has not what is asked for.

    Args:
        settings: Of the launch.
        stated: What he states.
        sizes: GPUs of each model.
    """
    for role, each in sizes.items():
        if stated is not None and each.gpus_per_node > stated:
            told = f"{settings.where('gpus_per_node', role)}: {each.gpus_per_node} GPUs of a node"
            settings.refuse(told, f"--gpus-per-node from {each.gpus_per_node}, not {stated}")
            return None
    return stated


def node_of(gpu: str) -> NodeType:
    """The usual node of a GPU type.

    Raises:
        SpecError: the catalogue has no such GPU type.
    """
    return catalogue.node_type(catalogue.gpu_type(gpu, field="gpu").node)
