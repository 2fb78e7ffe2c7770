"""Folders of measured profiles in specs: anchored, and given with `--profile`."""

from collections.abc import Collection, Sequence
from pathlib import Path

from automap.planner import catalogue
from automap.planner.profiles import SHIPPED, device_type
from automap.planner.spec import ClusterSpec, JobSpec
from automap.service.cli.terminal.failures import BadInputError


def with_absolute_profiles(document: object, folder: Path) -> object:
    """The document with the profile folders of its pools made absolute, relative to its own."""
    cluster = document.get("cluster") if isinstance(document, dict) else None
    pools = cluster.get("pools") if isinstance(cluster, dict) else None
    if not (isinstance(document, dict) and isinstance(cluster, dict) and isinstance(pools, list)):
        return document
    anchored = [_anchored(pool, folder) for pool in pools]
    return {**document, "cluster": {**cluster, "pools": anchored}}


def _anchored(pool: object, folder: Path) -> object:
    if not isinstance(pool, dict):
        return pool
    given = pool.get("profile")
    if not isinstance(given, str) or given in ("", SHIPPED):
        return pool
    return {**pool, "profile": str((folder / Path(given).expanduser()).absolute())}


def by_gpu_type(folders: Sequence[str]) -> dict[str, str]:
    """GPU type → the folder of what was measured on it.

    Raises:
        SpecError: a folder holds no profile.
        BadInputError: two folders are of one type.
    """
    by_type: dict[str, str] = {}
    for given in folders:
        folder = Path(given).expanduser().absolute()
        measured_on = device_type(folder, field="--profile")
        if measured_on in by_type:
            both = f"{by_type[measured_on]} and {folder}"
            raise BadInputError(f"--profile: {both} were both measured on {measured_on}")
        by_type[measured_on] = str(folder)
    return by_type


def with_profiles(
    spec: JobSpec, by_type: dict[str, str], *, others: Collection[str] = ()
) -> JobSpec:
    """The spec with each profile given to the pools that have its GPU type.

    Raises:
        BadInputError: no pool has that GPU type, nor is it one of the `others` that the command
            tries.
    """
    if not isinstance(spec.cluster, ClusterSpec):
        raise BadInputError(f"--profile: cluster {spec.cluster!r} is a name; give its pools")
    types = {
        pool.name: catalogue.gpu_type(pool.gpu, field=f"cluster.pools.{number}.gpu").name
        for number, pool in enumerate(spec.cluster.pools)
    }
    for measured_on, path in by_type.items():
        if measured_on not in {*types.values(), *others}:
            tried = "which no pool has" if not others else "which no pool has and nobody asks for"
            known = ", ".join(dict.fromkeys([*types.values(), *others]))
            raise BadInputError(
                f"--profile: {path} was measured on {measured_on}, {tried}",
                [f"{'asked for are' if others else 'the pools have'} {known}"],
            )
    pools = [
        pool.model_copy(update={"profile": by_type.get(types[pool.name], pool.profile)})
        for pool in spec.cluster.pools
    ]
    return spec.model_copy(update={"cluster": ClusterSpec(pools=pools)})
