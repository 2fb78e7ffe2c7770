"""Which target a job is planned for, and why another one cannot run it."""

from collections.abc import Mapping
from dataclasses import replace

from automap.planner.dataflow.graph import Dataflow
from automap.planner.errors import SpecError
from automap.planner.job.job import Model
from automap.planner.spec import JobSpec
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.tables import ANY, TARGETS
from automap.planner.targets.target import Target, pools_of_cores

UNKNOWN = replace(
    ANY,
    max_out_of_memory_probability=AUTOMAP.max_out_of_memory_probability,
    simplicity_tolerance=AUTOMAP.simplicity_tolerance,
)
"""Stands for the software that somebody will run a plan with, where nothing known can: all that can
be priced, as for `any`, but with memory to spare, and simple by preference."""


def target_of(spec: JobSpec, dataflow: Dataflow, models: Mapping[str, Model]) -> Target:
    """What the spec names; where it names nothing, automap if that can run the job, else `UNKNOWN`.

    Raises:
        SpecError: the named target cannot run the job.
    """
    name = spec.search.target
    if name is None and spec.search.strategy is not None:
        return ANY
    if name is None:
        return AUTOMAP if refusal(AUTOMAP, spec, dataflow, models) is None else UNKNOWN
    target = TARGETS[name]
    refused = refusal(target, spec, dataflow, models)
    if refused is not None:
        field, why = refused
        raise SpecError(
            "search.target",
            f"{name} cannot run this job: {field}: {why}",
            remedy=f"change {field}, or use search.target: any, whose plans are for comparison",
        )
    return target


def refusal(
    target: Target, spec: JobSpec, dataflow: Dataflow, models: Mapping[str, Model]
) -> tuple[str, str] | None:
    """(field, why) of the first thing about a job that a target cannot run; None: it runs it."""
    refused = target.refuses_job(spec)
    if refused is not None:
        return refused
    for role, model in models.items():
        what = target.refuses_model(
            model.architecture,
            role=role,
            lora=model.lora_rank is not None,
            workload=spec.workload,
        )
        if what is not None:
            return f"models.{role}", f"{what}, which is not planned for it"
    if target.shared_reference and "reference" in models and "actor" in models:
        own, actor = models["reference"].architecture, models["actor"].architecture
        if own != actor:
            return "models.reference", "its architecture is not the actor's"
    return _refusal_of_lengths(target, spec, dataflow, models) or _refusal_on_cores(
        target, spec, dataflow, models
    )


def _refusal_of_lengths(
    target: Target, spec: JobSpec, dataflow: Dataflow, models: Mapping[str, Model]
) -> tuple[str, str] | None:
    """What is too long for a model that generates, where the target holds it to its positions."""
    workload = spec.workload
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    for call in dataflow.calls if target.within_positions else ():
        if call.kind == "generate" and call.model is not None:
            positions = models[call.model].architecture.max_position_embeddings
            if longest > positions:
                why = f"with prompts sequences have up to {longest} tokens"
                have = f"{call.model} {positions} positions"
                more = "a config.json in place of its name may say more"
                return "workload.response_length", f"{why}, and {have}; {more}"
    return None


def _refusal_on_cores(
    target: Target, spec: JobSpec, dataflow: Dataflow, models: Mapping[str, Model]
) -> tuple[str, str] | None:
    """What keeps a model from generating on a pool of CPU cores, where there is such a pool."""
    cores = pools_of_cores(spec)
    for call in dataflow.calls if cores else ():
        if call.kind == "generate" and call.model is not None:
            what = target.rollout.refuses_on_cores(models[call.model].architecture)
            if what is not None:
                return f"models.{call.model}", f"{what} (pool {cores[0]})"
    return None
