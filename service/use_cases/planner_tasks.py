"""What use cases need of the planner: specs made whole, and tasks for planner processes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import JsonValue

from automap.planner.errors import SpecError
from automap.planner.spec import ClusterSpec, JobSpec
from automap.service.errors.domain import NotFoundError
from automap.service.planners.messages import PlannerTask, spec_of
from automap.service.storage import clusters, profile_files, profiles
from automap.service.use_cases.service_parts import ServiceParts

BRIEF_SECONDS = 120.0
"""Seconds for what searches nothing: an estimate, strategies that need no time limit."""


def resolve_spec(service: ServiceParts, spec: JobSpec, *, prefix: str = "") -> JobSpec:
    """The spec with a stored cluster's definition in place of its name, and all names known.

    Raises:
        SpecError: something in it is wrong; its field begins with `prefix`.
    """
    from automap.planner.job import resolve

    with spec_at(prefix):
        limit = service.settings.max_time_limit_seconds
        if spec.search.time_limit_seconds > limit:
            raise SpecError(
                "search.time_limit_seconds",
                f"{spec.search.time_limit_seconds:g} s is more than this service allows",
                remedy=f"use at most {limit:g}",
            )
        cluster = _cluster(service, spec.cluster)
        # What the pools are is checked before which profiles are theirs.
        resolve(spec.model_copy(update={"cluster": cluster}), with_profiles=False)
        with service.database.reading() as session:
            cluster = profiles.checked_cluster(
                session, cluster, field="cluster.pools", with_defaults=True
            )
        return spec.model_copy(update={"cluster": cluster})


@contextmanager
def spec_at(prefix: str) -> Iterator[None]:
    """Locate what is wrong with a spec in the request, where the spec is at `prefix`.

    Raises:
        SpecError: as raised inside, its field below `prefix` if it is one of a spec.
    """
    try:
        yield
    except SpecError as error:
        at = prefix if error.field.split(".", maxsplit=1)[0] in JobSpec.model_fields else ""
        raise SpecError(at + error.field, error.message, remedy=error.remedy) from error


def _cluster(service: ServiceParts, cluster: ClusterSpec | str) -> ClusterSpec:
    if isinstance(cluster, ClusterSpec):
        return cluster
    with service.database.reading() as session:
        try:
            return ClusterSpec(pools=clusters.find(session, cluster).pools)
        except NotFoundError:
            known = ", ".join(clusters.names(session)) or "none yet"
    raise SpecError(
        "cluster",
        f"no cluster named {cluster!r} is stored",
        remedy=f"give its pools, or store it with POST /v1/clusters; stored are: {known}",
    )


def ask(
    service: ServiceParts,
    task: PlannerTask,
    *,
    limit_seconds: float = BRIEF_SECONDS,
    wait_seconds: float = math.inf,
    prefix: str = "",
) -> JsonValue:
    """What a planner process answers; `prefix` is where the request has the spec.

    A client that leaves ends the search. `wait_seconds` bounds the wait for an idle process.

    Raises:
        PlanningError: the planner's own answer.
        PlannerProcessError, BusyError: it gave none.
    """
    with spec_at(prefix):
        if (spec := spec_of(task)) is not None:
            profile_files.materialise(service.database, service.settings.profiles_folder, spec)
        planners, is_wanted = service.planners, service.is_wanted
        with planners.process(is_wanted=is_wanted, wait_seconds=wait_seconds) as process:
            return process.run(task, limit_seconds=limit_seconds, keep_going=is_wanted)
