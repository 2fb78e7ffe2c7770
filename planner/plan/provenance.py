"""With what a plan was made, and whether that is what is here."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from automap.planner import catalogue
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.plan.types import Provenance
from automap.planner.profiles.corrections import summary


def provenance_of(job: Job) -> Provenance:
    """Of what is planned here and now."""
    pricing = Pricing(job)
    try:
        code_version = version("automap")
    except PackageNotFoundError:  # run from a checkout that was never installed
        code_version = "unknown"
    return Provenance(
        code_version=code_version,
        profile_versions={pool.gpu.name: pricing.profile(pool).version for pool in job.pools},
        operator_tables={pool.gpu.name: pricing.profile(pool).table_gpu for pool in job.pools},
        measured_profiles={
            pool.name: f"{pricing.profile(pool).version} in {pool.profile}"
            for pool in job.pools
            if pool.profile is not None
        },
        corrections={
            pool.name: summary(pricing.profile(pool).corrections)
            for pool in job.pools
            if pricing.profile(pool).corrections
        },
        catalogue_version=catalogue.catalogue_version(),
    )


def other_versions(made: Provenance, job: Job) -> list[str]:
    """What of a plan's provenance is not what its job would be planned with here, by name."""
    return list(_others(made, provenance_of(job)))


def _others(made: Provenance, here: Provenance) -> Iterator[str]:
    for name in ("code_version", "catalogue_version"):
        then, now = getattr(made, name), getattr(here, name)
        if then and then != now:
            yield f"{name} {then} (here {now})"
    for gpu, now in here.profile_versions.items():
        if (then := made.profile_versions.get(gpu)) not in (now, None, ""):
            yield f"profile_versions.{gpu} {then} (here {now})"
