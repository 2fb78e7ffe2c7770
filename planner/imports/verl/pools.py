"""The GPUs of a launch: the trainer's pool, the rollout's and the reward model's, in that order."""

from dataclasses import dataclass, replace
from typing import Any

from automap.planner import catalogue
from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.settings import Settings

MAX_GPUS = 10**6


@dataclass(frozen=True, slots=True)
class Range:
    """GPUs of one pool of verl."""

    num_nodes: int
    gpus_per_node: int
    first_gpu: int = 0

    @property
    def num_gpus(self) -> int:
        """All of them."""
        return self.num_nodes * self.gpus_per_node


@dataclass(frozen=True, slots=True)
class Pools:
    """verl's pools as ranges of one pool of ours."""

    trainer: Range
    rollout: Range | None
    """GPUs that only generate; None: the actor's generate."""
    reward: Range | None
    """GPUs of the reward model; None: it is on the trainer's, or there is none."""

    @property
    def apart(self) -> bool:
        """Whether generation has GPUs of its own."""
        return self.rollout is not None

    @property
    def ranges(self) -> list[Range]:
        """All that there are, in the order in which they take GPUs."""
        return [each for each in (self.trainer, self.rollout, self.reward) if each is not None]

    def spec(self, gpu: str, node: NodeType) -> dict[str, Any]:
        """The cluster as a spec says it."""
        found: dict[str, Any] = {"name": "gpus", "gpu": gpu}
        end, usual = max(each.first_gpu + each.num_gpus for each in self.ranges), node.gpus_per_node
        if end <= usual and all(each.num_nodes == 1 for each in self.ranges):
            return found | {"num_nodes": 1}
        each = max(each.gpus_per_node for each in self.ranges)
        found["num_nodes"] = -(-end // each)
        return found if each == usual else found | {"gpus_per_node": each}


def pools_of(settings: Settings, node: NodeType) -> Pools:
    """The pools of a launch."""
    trainer = _range(settings, "actor")
    if trainer is None and settings.whole("nodes", "actor", least=0) == 0:
        told = f"{settings.where('nodes', 'actor')} is 0: the trainer has no GPUs"
        settings.refuse(told, f"give it with --set {settings.key('nodes', 'actor')}=…")
    trainer = trainer or Range(1, 8)
    pools = _behind_one_another(trainer, _rollout(settings), _reward(settings), node)
    sizes = {each.gpus_per_node for each in pools.ranges}
    if len(sizes) > 1 and any(each.num_nodes > 1 for each in pools.ranges):
        told = ", ".join(f"{each.num_nodes} × {each.gpus_per_node}" for each in pools.ranges)
        roles = ("actor", "rollout", "reward")
        found = [role for role in roles if settings.given("gpus_per_node", role) is not None]
        where = ", ".join(settings.where("gpus_per_node", role) for role in found)
        told = f"{where}: pools with different numbers of GPUs on a node: {told}"
        settings.refuse(told, "give all pools the same number")
    return pools


def _behind_one_another(
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


def _range(settings: Settings, role: str) -> Range | None:
    nodes, each = settings.whole("nodes", role, least=0), settings.whole("gpus_per_node", role)
    if not nodes or not each:
        return None
    if nodes * each > MAX_GPUS:
        told = f"{settings.where('nodes', role)}: {nodes} nodes of {each} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        return None
    return Range(nodes, each)


def _rollout(settings: Settings) -> Range | None:
    """GPUs that only generate; None: there are none."""
    newer, mode = settings.flag("trainer"), settings.text("synchrony")
    hybrid = settings.flag("engines_on_training_gpus")
    if not newer or mode == "sync":
        return None
    given = settings.given("synchrony")
    if mode == "colocate_async":
        told = "colocate_async is priced as sync: generation and training in turn"
        settings.note("assumed", told, given)
        return None
    if mode != "separate_async":
        settings.refuse(
            f"{settings.where('synchrony')} is {mode[:40]!r}",
            "known: sync, colocate_async, separate_async",
        )
        return None
    found = _range(settings, "rollout")
    if found is None:
        key = settings.key("nodes", "rollout")
        told = f"{settings.where('synchrony')} is separate_async, and {key} is 0"
        settings.refuse(told, f"give it with --set {key}=…")
    if hybrid:
        told = "engines on the trainer's GPUs as well (hybrid_engine) are left out of the price"
        settings.note("not priced", told, settings.given("engines_on_training_gpus"))
    return found


def _reward(settings: Settings) -> Range | None:
    if not settings.flag("with_reward_model") or not settings.flag("reward_pool"):
        return None
    found = _range(settings, "reward")
    if found is None:
        key = settings.key("nodes", "reward")
        told = f"{settings.where('reward_pool')}: the reward model has its own pool, and {key} is 0"
        settings.refuse(told, f"give it with --set {key}=…")
    return found


def node_of(gpu: str) -> NodeType:
    """The usual node of a GPU type.

    Raises:
        SpecError: the catalogue has no such GPU type.
    """
    return catalogue.node_type(catalogue.gpu_type(gpu, field="gpu").node)
