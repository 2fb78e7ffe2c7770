"""The GPUs of a NeMo-RL launch: those of its cluster, split into training and generation."""

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.pools import MAX_GPUS, Pools, Range, behind_one_another
from automap.planner.imports.settings import Settings


def pools_of(settings: Settings, node: NodeType) -> Pools:
    """The ranges of a launch, and what contradicts itself in them."""
    nodes, each = settings.size("nodes"), settings.size("gpus_per_node")
    if nodes * each > MAX_GPUS:
        told = f"{settings.where('nodes')}: {nodes} nodes of {each} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        nodes, each = 1, 8
    rollout = _rollout(settings, nodes, each)
    if rollout is None:
        return Pools(Range(nodes, each), None, None)
    trainer = Range(nodes - rollout.num_nodes, each)
    if nodes == 1:
        trainer = Range(1, each - rollout.num_gpus)
    return behind_one_another(trainer, rollout, None, node)


def _rollout(settings: Settings, nodes: int, each: int) -> Range | None:
    """GPUs that only generate; None: those that train do."""
    role = "rollout"
    on_nodes, of_each = (
        settings.whole(name, role) for name in ("rollout_nodes", "rollout_gpus_per_node")
    )
    if settings.flag("colocated"):
        return None
    wanted = "rollout_gpus_per_node" if nodes == 1 else "rollout_nodes"
    number, most = (of_each, each) if nodes == 1 else (on_nodes, nodes)
    key = settings.key(wanted, role)
    if number is None:
        told = f"{settings.where('colocated')} is false, and {key} is not set"
        settings.ask(told, f"--set {key}=…")
        return None
    if number >= most:
        told = f"{settings.where(wanted, role)} is {number} of {most}: none are left to train"
        settings.refuse(told, f"give at most {most - 1}")
        return None
    if nodes == 1:
        return Range(1, number)
    if of_each != each:
        told = (
            f"{settings.key('rollout_gpus_per_node', role)} is {of_each}, and generation takes "
            f"whole nodes of {each} GPUs: it does not start"
        )
        settings.note("does not fit", told, settings.given("colocated"))
    return Range(number, each)
