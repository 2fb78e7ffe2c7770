"""The GPUs of an OpenRLHF launch: a group for each set of models that its switches put together."""

from collections.abc import Mapping, Sequence

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.pools import MAX_GPUS, Groups, Range, grouped, node_size, range_of
from automap.planner.imports.settings import Settings


def groups_of(
    settings: Settings, roles: Sequence[str], node: NodeType, of_node: int | None
) -> Groups:
    """The ranges of a launch with these models, and what contradicts itself in them.

    `of_node` is the number of GPUs of a node that the user states, `node` the usual one.
    """
    sizes = {role: range_of(settings, role) for role in roles}
    whole, ahead = settings.flag("colocated"), settings.flag("asynchronous")
    rollout = _rollout(settings, sizes["actor"], shared=whole and not ahead)
    sets = _sets(settings, roles, whole=whole)
    for members in sets:
        _compare(settings, sizes, members, whole=whole)
    return grouped(sizes, sets, rollout, node_size(settings, of_node, sizes), node)


def _rollout(settings: Settings, actor: Range, *, shared: bool) -> Range | None:
    """GPUs that only generate; None: the actor's do."""
    count, role = settings.whole("engines", "rollout"), "rollout"
    tensor = settings.size("engine_tensor_parallel_size", role)
    if count is None:
        key = settings.key("engines", role)
        settings.ask(f"{key} is not set", f"--set {key}=…")
        return None
    if count * tensor > MAX_GPUS:
        told = f"{settings.where('engines', role)}: {count} engines of {tensor} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        return None
    if not shared:
        each = min(actor.gpus_per_node, count * tensor)
        return Range(count * tensor // each, each) if not count * tensor % each else None
    if count * tensor != actor.num_gpus:
        told = f"{count} engines of {tensor} GPUs share the actor's {actor.num_gpus}"
        where = settings.where("engines", role)
        settings.refuse(f"{where}: {told}", f"give what multiplies to {actor.num_gpus}")
    return None


def _sets(settings: Settings, roles: Sequence[str], *, whole: bool) -> list[list[str]]:
    """Models that share GPUs, the actor's first."""
    joined, paired = settings.flag("colocated_reference"), settings.flag("colocated_reward")
    paired = paired and "critic" in roles
    others = [role for role in ("critic", "reward") if role in roles]
    first = ["actor"]
    if "reference" in roles and (whole or joined):
        first.append("reference")
    if whole and not paired:
        return [[*first, *others]]
    alone = [["reference"]] if "reference" in roles and "reference" not in first else []
    return [first, *alone, *([others] if paired else [[each] for each in others])]


def _compare(
    settings: Settings, sizes: Mapping[str, Range], members: Sequence[str], *, whole: bool
) -> None:
    """Refuse sizes with which its own checks end the start, or that do not fit their group."""
    first = sizes[members[0]]
    for role in members[1:]:
        its = sizes[role]
        smaller = whole and role in ("critic", "reward") and members[0] == "actor"
        if its == first or (smaller and its.num_gpus <= first.num_gpus):
            continue
        told = f"{its.num_nodes} × {its.gpus_per_node} GPUs of {role} in a group of"
        told = f"{told} {first.num_nodes} × {first.gpus_per_node}"
        where = settings.where("gpus_per_node", role)
        settings.refuse(f"{where}: {told}", f"give {role} those of {members[0]}")
