"""The versions and data a plan was made with, and whether they are those of this installation."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from automap.planner import catalogue
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.plan.types import Provenance
from automap.planner.profiles.corrections import summary

COST_MODEL_VERSION = "19"
"""Version of prices and search space, increased by a change that gives some spec another price,
bound or space of plans.

A release leaves it as it is otherwise, and plans and proofs of an earlier release then hold.
tests/golden/plans.json says when it must be increased.
"""


def code_version() -> str:
    """The release of this installation."""
    try:
        return version("automap")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


def provenance_of(job: Job) -> Provenance:
    """The provenance of a plan of this job that is made here and now."""
    pricing = Pricing(job)
    return Provenance(
        code_version=code_version(),
        cost_model_version=COST_MODEL_VERSION,
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
    """Names of what differs between a plan's provenance and that of a plan made here and now."""
    return list(_others(made, provenance_of(job)))


def _others(made: Provenance, here: Provenance) -> Iterator[str]:
    model = "code_version" if made.cost_model_version is None else "cost_model_version"
    for name in (model, "catalogue_version"):
        then, now = getattr(made, name), getattr(here, name)
        if then and then != now:
            yield f"{name} {then} (here {now})"
    for gpu, now in here.profile_versions.items():
        if (then := made.profile_versions.get(gpu)) not in (now, None, ""):
            yield f"profile_versions.{gpu} {then} (here {now})"
