"""The job of a launch, looked up, and what is taken for granted of its hardware."""

from automap.planner.errors import SpecError
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import TARGETS


def resolved(settings: Settings, spec: JobSpec) -> Job:
    """The job, inside the framework where its tables have all of it."""
    name = settings.framework.target
    inside = spec.search.model_copy(update={"target": name})
    table = next((each for each in TARGETS.values() if each.name == name), None)
    if table is not None and (table.algorithms is None or spec.algorithm in table.algorithms):
        try:
            job = resolve(spec.model_copy(update={"search": inside}))
        except SpecError as error:
            settings.assume(f"the job is priced outside {name}: {error.message}")
        else:
            if job.spec.search.continuous_rollouts and spec.search.continuous_rollouts is None:
                settings.assume("rollouts never drain (search.continuous_rollouts: true)")
            return job
    return resolve(spec)


def assume_hardware(settings: Settings, job: Job) -> None:
    """Note that hardware and framework are as the catalogue and the description have them."""
    pool = job.pools[0]
    settings.assume(
        f"nodes of {pool.gpus_per_node} {pool.gpu.name}, with the catalogue's links and host memory"
    )
    for line in settings.framework.assumptions:
        settings.assume(line)
