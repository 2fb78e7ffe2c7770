"""The GPUs of a SkyRL launch: one group for all, or one for each set of models."""

from collections.abc import Mapping, Sequence

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.pools import MAX_GPUS, Groups, Range, grouped, node_size, range_of
from automap.planner.imports.settings import Settings

ENGINE_SIZES = ("tensor", "pipeline", "data")


def groups_of(
    settings: Settings, roles: Sequence[str], node: NodeType, of_node: int | None
) -> Groups:
    """The ranges of a launch with these models, and what contradicts itself in them.

    `of_node` is the number of GPUs of a node that the user states, `node` the usual one.
    """
    sizes = {role: range_of(settings, role) for role in roles}
    whole = settings.flag("colocated")
    joined = settings.flag("colocated_reference")
    rollout = _rollout(settings, sizes["actor"], shared=whole)
    if whole:
        sets = [list(roles)]
    elif joined and "reference" in roles:
        others = [[role] for role in roles if role not in ("actor", "reference")]
        sets = [["actor", "reference"], *others]
    else:
        sets = [[role] for role in roles]
    for members in sets:
        _compare(settings, sizes, members)
    return grouped(sizes, sets, rollout, node_size(settings, of_node, sizes), node)


def _rollout(settings: Settings, actor: Range, *, shared: bool) -> Range | None:
    """GPUs that only generate; None: the actor's do."""
    role = "rollout"
    count = settings.size("engines", role)
    each = 1
    for name in ENGINE_SIZES:
        each *= settings.size(f"engine_{name}_parallel_size", role)
    number = count * each
    where = settings.where("engines", role)
    if number > MAX_GPUS:
        told = f"{where}: {count} engines of {each} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        return None
    if not shared:
        of_node = min(actor.gpus_per_node, number)
        return Range(-(-number // of_node), of_node) if number % of_node == 0 else Range(1, number)
    if number != actor.num_gpus:
        told = f"{count} engines of {each} GPUs share the actor's {actor.num_gpus}"
        settings.refuse(f"{where}: {told}", f"give what multiplies to {actor.num_gpus}")
    return None


def _compare(settings: Settings, sizes: Mapping[str, Range], members: Sequence[str]) -> None:
    """Refuse sizes with which its own checks end the start."""
    first = sizes[members[0]]
    for role in members[1:]:
        its = sizes[role]
        if its.num_gpus != first.num_gpus:
            told = f"{its.num_nodes} × {its.gpus_per_node} GPUs of {role} in a group of"
            told = f"{told} {first.num_nodes} × {first.gpus_per_node}"
            where = settings.where("gpus_per_node", role)
            settings.refuse(f"{where}: {told}", f"give {role} those of {members[0]}")
