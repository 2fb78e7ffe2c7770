"""Which engine trains and scores a home: the plan's, or the one that the run settings name."""

from typing import Literal, cast

from automap.executor.errors import RunError
from automap.executor.settings import RunSettings
from automap.planner.job import Job
from automap.planner.plan import CopyPlacement, engine_name, home_refusals
from automap.planner.targets import AUTOMAP

Engine = Literal["megatron", "fsdp"]


def engine_of(job: Job, copy: CopyPlacement, settings: RunSettings) -> Engine | None:
    """The engine of a home; None for a shadow, which only generates.

    Raises:
        RunError: no engine can keep the copy as planned, or not the one that the settings name.
    """
    if copy.kind == "shadow":
        return None
    planned = engine_name(job, copy, AUTOMAP)
    named = settings.training_of(copy.role).engine
    if named is None:
        if planned is None:
            lacks = "; ".join(home_refusals(job, copy, AUTOMAP))
            raise RunError(
                f"copy {copy.id} cannot be run as planned: {lacks}; plan with search.target: "
                "automap"
            )
        return cast("Engine", planned)
    lacks = "; ".join(home_refusals(job, _as_kept(job, copy, named), AUTOMAP, engine=named))
    if lacks:
        remedy = f"leave it out for {planned}" if planned else "plan with search.target: automap"
        raise RunError(
            f"training.{copy.role}.engine: {named} cannot run copy {copy.id} as planned: {lacks}; "
            f"{remedy}"
        )
    return named


def _as_kept(job: Job, copy: CopyPlacement, engine: Engine) -> CopyPlacement:
    """The copy as the engine keeps it: FSDP2 shards what lies idle even where the plan does not."""
    layout = copy.layout
    if engine != "fsdp" or layout.sharding in ("gradient", "full"):
        return copy
    sharding = "gradient" if job.models[copy.role].trainable else "full"
    return copy.model_copy(update={"layout": layout.model_copy(update={"sharding": sharding})})
