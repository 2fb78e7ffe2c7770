"""An optimizer that updates on the host: settings of Megatron-core that frameworks pass on."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from automap.planner.frameworks.description import JOB
from automap.planner.imports.settings import MAX_SHOWN, Settings

OFFLOAD, FRACTION = "optimizer_cpu_offload", "optimizer_offload_fraction"
OVERLAP, PRECISION_AWARE = "overlap_cpu_optimizer_d2h_h2d", "use_precision_aware_optimizer"


def host_optimizer(
    settings: Settings,
    optimizer: str,
    roles: Sequence[str] = (JOB,),
    *,
    precision_aware: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, bool]:
    """What a workload has of it; empty: the price is that of an optimizer on the GPUs.

    Args:
        settings: Of the launch.
        optimizer: The optimizer that it is priced as.
        roles: Models that train, the one that the others are priced as first.
        precision_aware: Of these, those whose optimizer is a precision-aware one unless Megatron's
            own setting says otherwise → why.
    """
    if not settings.knows(OFFLOAD, roles[0]):
        return {}
    for role, why in precision_aware.items():
        _note_needless(settings, role, why)
    found = [
        _updates_on_host(settings, optimizer, role, by_itself=role in precision_aware)
        for role in roles
    ]
    for role, each in zip(roles, found, strict=True):
        if each != found[0]:
            told = f"{settings.key(OFFLOAD, role)}: priced as the {roles[0]}'s"
            settings.note("not priced", told, settings.given(OFFLOAD, role))
    return {OFFLOAD: True} if found[0] else {}


def _note_needless(settings: Settings, role: str, why: str) -> None:
    """Note the framework's own key of a precision-aware optimizer where it does not read it."""
    for key in _followed(settings, role):
        settings.decides.setdefault(key, "the precision of the optimizer's state")
        given = settings.overrides.given.get(key)
        if given is not None:
            settings.note("without effect", f"{key} has no effect: {why}", given)


def _updates_on_host(settings: Settings, optimizer: str, role: str, *, by_itself: bool) -> bool:
    """Whether all of a model's optimizer is on the host; what is priced otherwise is noted."""
    settings.needless(OVERLAP, role)  # the price counts on no overlap
    if not settings.flag(OFFLOAD, role):
        settings.needless(FRACTION, role)
        _note_precision(settings, role, by_itself=by_itself)
        return False
    key, given = settings.key(OFFLOAD, role), settings.given(OFFLOAD, role)
    share = settings.value(FRACTION, role)
    is_share = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
    if share is not None and not is_share:
        told = f"{settings.where(FRACTION, role)}: {str(share)[:MAX_SHOWN]} is no share"
        settings.refuse(told, "give a number from 0 to 1")
    part = isinstance(share, int | float) and share < 1
    if not part and optimizer == "adam":
        _note_masters(settings, role, by_itself=by_itself)
        return True
    _note_precision(settings, role, by_itself=by_itself)
    if share == 0:
        told = f"{key} has no effect: {settings.key(FRACTION, role)} is {share}"
        settings.note("without effect", told, given)
        return False
    what = f"a share of {share} of the optimizer" if part else f"the optimizer {optimizer}"
    settings.note("saves memory", f"{key}: {what} on the host is priced as on the GPUs", given)
    # No plan has it, and a conversion is to say so.
    del settings.decides[key]
    return False


def _note_masters(settings: Settings, role: str, *, by_itself: bool) -> None:
    """Note masters that are on the GPUs beside those on the host."""
    key, given = settings.key(PRECISION_AWARE, role), settings.given(PRECISION_AWARE, role)
    aware = settings.flag(PRECISION_AWARE, role) or (by_itself and given is None)
    for followed in _followed(settings, role):
        settings.decides.setdefault(followed, "the precision of the optimizer's state")
    if not aware:
        told = (
            f"{key} is false: masters stay on the GPUs beside those on the host, 4 bytes for each "
            "parameter that a GPU updates"
        )
        settings.note("not priced", told, settings.given(OFFLOAD, role))


def _note_precision(settings: Settings, role: str, *, by_itself: bool) -> None:
    """Note masters in fewer bits, of an optimizer on the GPUs."""
    given = settings.given(PRECISION_AWARE, role)
    if given is not None and settings.flag(PRECISION_AWARE, role) and not by_itself:
        del settings.decides[given.key]
        told = f"{given.key}: the precision of the optimizer's state"
        settings.note("saves memory", told, given)


def _followed(settings: Settings, role: str) -> list[str]:
    """The key that says the same, where the framework has one more."""
    setting = settings.framework.setting(PRECISION_AWARE, role=role, engine=settings.engine)
    return [key for key in (setting.follows.get(role),) if key is not None]
