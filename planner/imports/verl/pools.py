"""The GPUs of a verl launch: its pools."""

from automap.planner.catalogue.hardware import NodeType
from automap.planner.imports.pools import MAX_GPUS, Pools, Range, behind_one_another
from automap.planner.imports.settings import Settings


def pools_of(settings: Settings, node: NodeType) -> Pools:
    """The pools of a launch."""
    trainer = _range(settings, "actor")
    if trainer is None and settings.whole("nodes", "actor", least=0) == 0:
        told = f"{settings.where('nodes', 'actor')} is 0: the trainer has no GPUs"
        settings.refuse(told, f"give it with --set {settings.key('nodes', 'actor')}=…")
    trainer = trainer or Range(1, 8)
    pools = behind_one_another(trainer, _rollout(settings), _reward(settings), node)
    sizes = {each.gpus_per_node for each in pools.ranges}
    if len(sizes) > 1 and any(each.num_nodes > 1 for each in pools.ranges):
        told = ", ".join(f"{each.num_nodes} × {each.gpus_per_node}" for each in pools.ranges)
        roles = ("actor", "rollout", "reward")
        found = [role for role in roles if settings.given("gpus_per_node", role) is not None]
        where = ", ".join(settings.where("gpus_per_node", role) for role in found)
        told = f"{where}: pools with different numbers of GPUs on a node: {told}"
        settings.refuse(told, "give all pools the same number")
    return pools


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
