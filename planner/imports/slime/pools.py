"""The GPUs of a slime launch: those that train, and behind them those that generate."""

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.pools import MAX_GPUS, Pools, Range, behind_one_another
from automap.planner.imports.settings import Settings
from automap.planner.imports.slime.commands import PROGRAMS


def pools_of(settings: Settings, node: NodeType) -> Pools:
    """The ranges of a launch, and what contradicts itself in them."""
    nodes, each = settings.size("nodes", "actor"), settings.size("gpus_per_node", "actor")
    settings.whole("node_gpus")
    if nodes * each > MAX_GPUS:
        told = f"{settings.where('nodes', 'actor')}: {nodes} nodes of {each} GPUs"
        settings.refuse(told, f"at most {MAX_GPUS} GPUs are priced")
        nodes, each = 1, 8
    trainer = Range(nodes, each)
    rollout = _rollout(settings, trainer)
    pools = behind_one_another(trainer, rollout, None, node)
    several = nodes > 1 or (rollout is not None and rollout.num_nodes > 1)
    if rollout is not None and several and rollout.num_gpus % each:
        told = f"{settings.where('rollout_gpus')}: {rollout.num_gpus} GPUs on nodes of {each}"
        settings.refuse(told, f"give a multiple of {each}, or all on one node")
    return pools


def _rollout(settings: Settings, trainer: Range) -> Range | None:
    """GPUs that only generate; None: those that train do."""
    given, count = settings.given("rollout_gpus"), settings.whole("rollout_gpus")
    if settings.flag("colocated"):
        if settings.overrides.entry == PROGRAMS[1]:
            told = f"{settings.where('colocated')}: {PROGRAMS[1]} does not start with it"
            settings.note("does not fit", told, settings.given("colocated"))
        if given is not None and count not in (None, trainer.num_gpus):
            told = (
                f"{given.key} is {count}, and {trainer.num_gpus} GPUs train: engines are priced on "
                "these"
            )
            settings.note("assumed", told, given)
        return None
    if count is None:
        key = settings.key("rollout_gpus")
        settings.ask(f"{key} is not set, and neither is --colocate", f"--set {key}=…")
        return None
    each = trainer.gpus_per_node if trainer.num_nodes > 1 else settings.size("node_gpus")
    return Range(1, count) if count <= each else Range(max(count // each, 1), each)
