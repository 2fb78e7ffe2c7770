"""The GPUs of an AReaL launch: each model's own, or those of another one that it joins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automap.planner.catalogue.hardware import NodeType
from automap.planner.exports.areal.backends import BUILT, NAMES
from automap.planner.imports.areal.backends import Backend
from automap.planner.imports.pools import Pools, Range
from automap.planner.imports.settings import Settings

ROLES = {theirs: ours for ours, theirs in NAMES.items()} | {"rollout": "rollout"}
"""AReaL's name of a role → ours."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where each model is."""

    pools: Pools
    homes: Mapping[str, Range]


def places_of(settings: Settings, backends: Mapping[str, Backend], node: NodeType) -> Places:
    """The ranges of a launch, and what contradicts itself in them."""
    order = [role for role in (*BUILT, "rollout") if role in backends]
    joins = {role: _joined(settings, role, backends) for role in order}
    stated = settings.given("gpus_per_node") is not None
    each = settings.size("gpus_per_node") if stated else node.gpus_per_node
    own = [role for role in order if joins[role] is None]
    placed = _lined_up(settings, [(role, backends[role].num_gpus) for role in own], each)
    homes = {role: placed[_first(role, joins)] for role in order}
    _count(settings, [backends[role].num_gpus for role in own], each)
    rollout = None if joins["rollout"] else homes["rollout"]
    others = tuple(placed[role] for role in own if role not in ("actor", "rollout"))
    return Places(Pools(homes["actor"], rollout, None, others), homes)


def _first(role: str, joins: Mapping[str, str | None]) -> str:
    target = joins[role]
    return role if target is None else _first(target, joins)


def _joined(settings: Settings, role: str, backends: Mapping[str, Backend]) -> str | None:
    """The model whose GPUs a role is on; None: it has its own."""
    kind, target = settings.text("sharing", role), settings.text("sharing_with", role)
    given = settings.given("sharing", role)
    where = settings.where("sharing", role)
    if kind not in ("separation", "colocation"):
        settings.refuse(f"{where} is {kind[:40]!r}", "known: separation, colocation")
    if kind != "colocation":
        return None
    other, order = ROLES.get(target), (*BUILT, "rollout")
    if (
        role == "actor"
        or other is None
        or other not in backends
        or order.index(other) >= order.index(role)
    ):
        known = ", ".join(NAMES[each] for each in BUILT if each in backends and each != role)
        told = f"{settings.where('sharing_with', role)} is {target[:40]!r}, not started before it"
        settings.refuse(told, f"one of {known or 'none: it is the first'}")
        return None
    processes = backends[role].data if role == "rollout" else backends[role].num_gpus
    if processes != backends[other].num_gpus:
        told = f"{where}: {processes} processes on the {backends[other].num_gpus} of {target}"
        remedy = "as many of both: engines that generate are of one GPU each there"
        settings.refuse(told, remedy if role == "rollout" else "sizes that multiply to as many")
        return None
    if role == "rollout":
        told = f"{where}: new weights pass through a disk, and engines start beside the {target}"
        settings.note("not priced", told, given)
        if settings.text("weight_backend") != "disk":
            told = f"it does not start with {settings.key('weight_backend')} other than disk"
            settings.note("does not fit", f"{where}: {told}", given)
    return other


def _lined_up(settings: Settings, given: Sequence[tuple[str, int]], each: int) -> dict[str, Range]:
    """Ranges behind one another, none of which begins on a node and ends on another part of one."""
    found, free = dict[str, Range](), 0
    for role, number in given:
        if number <= each:
            first = free if free % each + number <= each else -(-free // each) * each
            found[role] = Range(1, number, first)
        else:
            first = -(-free // each) * each
            if number % each:
                decision = "engine_backend" if role == "rollout" else "backend"
                told = f"{settings.where(decision, role)}: {number} GPUs on nodes of {each}"
                settings.refuse(told, f"priced are parts of a node, and multiples of {each} GPUs")
            found[role] = Range(-(-number // each), each, first)
        free = first + number
    return found


def _count(settings: Settings, given: Sequence[int], each: int) -> None:
    """Note backends that need more GPUs than the cluster has: AReaL does not compare them."""
    nodes = settings.whole("nodes") if settings.given("nodes") is not None else None
    total = sum(given)
    if nodes is not None and total > nodes * each:
        told = f"backends take {total} GPUs, and the cluster has {nodes} × {each}"
        settings.note("does not fit", told, settings.given("nodes"))
