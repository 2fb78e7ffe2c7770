"""With what a plan was made, and whether that is what is here."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from automap.planner import catalogue
from automap.planner.cost.pricing import Pricing
from automap.planner.job.job import Job
from automap.planner.plan.types import Provenance
from automap.planner.profiles.corrections import summary

COST_MODEL_VERSION = "1"
"""Raised by a change after which some spec has another price, bound or space of plans.

Not by every release: plans and proofs of an earlier release hold as long as this is the same.
tests/golden/plans.json says when it must be raised.
"""


def provenance_of(job: Job) -> Provenance:
    """What a plan of this job would be made with here and now."""
    pricing = Pricing(job)
    try:
        code_version = version("automap")
    except PackageNotFoundError:  # run from a checkout that was never installed
        code_version = "unknown"
    return Provenance(
        code_version=code_version,
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
    """What of a plan's provenance is not what its job would be planned with here, by name."""
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
