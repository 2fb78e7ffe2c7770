"""Which profiles priced plans, by GPU type: what calibration starts from by default."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automap.planner import catalogue
from automap.planner.catalogue.hardware import GpuType
from automap.planner.cost.operators.profile import load_profile
from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.profiles.folder import BASED_ON, FINGERPRINT, SHIPPED
from automap.planner.profiles.tables import MEASUREMENTS
from automap.planner.spec import ClusterSpec, PoolSpec

OPTION = "--profile"


@dataclass(frozen=True, slots=True)
class Base:
    """The profile that calibration of a GPU type starts from, and the pools that teach it."""

    gpu: GpuType
    folder: Path | None
    """Folder of the profile; None: the shipped tables."""
    pools: tuple[str, ...]

    def materialised(self, scratch: Path) -> Path:
        """The profile's folder; for the shipped tables one that is made in `scratch`."""
        if self.folder is not None:
            return self.folder
        folder = scratch / self.gpu.name
        profile = load_profile(self.gpu)
        identity = {
            "device_type": self.gpu.name,
            BASED_ON: SHIPPED,
            "tables": profile.table_gpu,
            "tables_version": profile.version,
        }
        folder.mkdir()
        (folder / FINGERPRINT).write_text(json.dumps({"identity": identity}, indent=1) + "\n")
        (folder / MEASUREMENTS).touch()
        return folder


def bases_of(plans: Sequence[Plan], *, shipped: bool = False) -> list[Base]:
    """The profile of every GPU type on which these plans place models.

    `shipped`: the shipped tables, whatever the plans were priced with.

    Raises:
        SpecError: pools of one type were priced with different profiles, or a folder is not here.
    """
    found: dict[str, tuple[Path | None, list[str]]] = {}
    for plan in plans:
        for pool in _used_pools(plan):
            name = catalogue.gpu_type(pool.gpu).name
            folder = None if shipped else _folder(pool, plan)
            before, pools = found.setdefault(name, (folder, []))
            if before != folder:
                raise SpecError(
                    OPTION,
                    f"pools of {name} were priced with {_described(before)} and with "
                    f"{_described(folder)}",
                    remedy=f"name what is to be calibrated: a folder, or {SHIPPED}",
                )
            if pool.name not in pools:
                pools.append(pool.name)
    return [
        Base(catalogue.gpu_type(name), folder, tuple(pools))
        for name, (folder, pools) in found.items()
    ]


def pools_of(plan: Plan, gpu: str) -> tuple[str, ...]:
    """The pools of a GPU type on which a plan places models."""
    pools = _used_pools(plan)
    return tuple(pool.name for pool in pools if catalogue.gpu_type(pool.gpu).name == gpu)


def with_profiles(plan: Plan, profiles: Mapping[str, str]) -> ClusterSpec:
    """A plan's cluster, its pools with the profiles that are given for their GPU types."""
    pools = [
        pool.model_copy(
            update={"profile": profiles.get(catalogue.gpu_type(pool.gpu).name, pool.profile)}
        )
        for pool in _cluster(plan).pools
    ]
    return ClusterSpec(pools=pools)


def _used_pools(plan: Plan) -> list[PoolSpec]:
    used = {copy.pool for copy in plan.copies}
    return [pool for pool in _cluster(plan).pools if pool.name in used]


def _cluster(plan: Plan) -> ClusterSpec:
    if not isinstance(plan.spec.cluster, ClusterSpec):
        message = f"the plan names the cluster {plan.spec.cluster!r} and has none of its pools"
        raise SpecError("spec.cluster", message, remedy="plan the job again")
    return plan.spec.cluster


def _folder(pool: PoolSpec, plan: Plan) -> Path | None:
    if pool.profile in (None, SHIPPED):
        return None
    assert pool.profile is not None
    folder = Path(pool.profile)
    if not folder.is_dir():
        version = plan.provenance.measured_profiles.get(pool.name, pool.profile)
        raise SpecError(
            OPTION,
            f"pool {pool.name} was priced with the profile {version}, which is no folder here",
            remedy=f"name its folder (automap profiles VERSION --fetch FOLDER has it from a "
            f"service), or {SHIPPED} for the tables that come with the planner",
        )
    return folder


def _described(folder: Path | None) -> str:
    return "the shipped tables" if folder is None else str(folder)
