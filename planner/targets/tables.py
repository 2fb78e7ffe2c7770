"""The targets that `search.target` names, each a table of what it can run."""

from typing import get_args

from automap.planner.spec import (
    JobSpec,
    RolloutEngine,
    SearchSpec,
    TargetName,
    TrainingStack,
    with_version,
)
from automap.planner.targets.areal import AREAL
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.capabilities import RolloutCapabilities, TrainingCapabilities
from automap.planner.targets.continuous import ContinuousRules
from automap.planner.targets.nemo_rl import NEMO_RL
from automap.planner.targets.openrlhf import OPENRLHF
from automap.planner.targets.skyrl import SKYRL
from automap.planner.targets.slime import SLIME
from automap.planner.targets.target import Target
from automap.planner.targets.trl import TRL
from automap.planner.targets.verl import VERL

ANY = Target(
    name="any",
    summary="whatever can be priced, for research: no software is known to run all of it",
    # What is priced is the software that a layout belongs to, as for automap.
    training=(
        TrainingCapabilities(
            name="any",
            stacks=("automap-megatron", *get_args(TrainingStack)),
            shardings=frozenset({"none", "optimizer"}),
            scoring_shardings=frozenset({"none"}),
        ),
        TrainingCapabilities(name="any", stacks=("fsdp", *get_args(TrainingStack))),
    ),
    rollout=RolloutCapabilities(names=frozenset(get_args(RolloutEngine))),
    continuous=ContinuousRules(cache_is_asked=True, trains_one_batch=False),
    # Published plans had no margin of this kind and were not simplified, nor is what reproduces
    # them.
    max_out_of_memory_probability=1.0,
    simplicity_tolerance=0.0,
)
TARGETS: dict[TargetName, Target] = {
    target.name: target
    for target in (AUTOMAP, VERL, SLIME, NEMO_RL, OPENRLHF, TRL, SKYRL, AREAL, ANY)
}
FRAMEWORKS = tuple(target for target in TARGETS.values() if target not in (AUTOMAP, ANY))
"""Targets that plans are exported to; a job that names none, and automap cannot run, is planned for
the first that can."""


def inside(spec: JobSpec, name: TargetName) -> JobSpec:
    """The job as it is planned for a target, and no strategy; a framework's name may be alone."""
    known = next(each for each in TARGETS if each == with_version(name))
    search = spec.search.model_copy(update={"target": known, "strategy": None})
    return filled_in(spec.model_copy(update={"search": search}), TARGETS[known])


def filled_in(spec: JobSpec, target: Target) -> JobSpec:
    """The job with what its spec leaves open as a target has it.

    That is what generates, whether in batches, whether sequences are packed, and where the
    divergence is.
    """
    workload, search, rules = spec.workload, spec.search, target.continuous
    left = left_open(spec, target)
    open_ones = {key: left[key] for key in left.keys() - workload.model_fields_set}
    flow = rules.left_open(search) if rules is not None else {}
    update = {
        "workload": workload.model_copy(update=open_ones),
        "search": search.model_copy(update=flow),
    }
    return spec.model_copy(update=update)


def left_to(spec: JobSpec, target: Target) -> SearchSpec:
    """The search of a job with what another target decides, or cannot do, left open."""
    rules = target.continuous
    flow = ("continuous_rollouts", "keep_cache_at_sync")
    decided = dict.fromkeys(flow) if rules is None else rules.decides(spec.search)
    return spec.search.model_copy(update=decided)


def left_open(spec: JobSpec, target: Target) -> dict[str, object]:
    """What a target has of the workload where a spec does not say it, or says what it lacks."""
    found: dict[str, object] = {}
    if spec.workload.rollout_engine not in target.rollout.names:
        found["rollout_engine"] = min(target.rollout.names)
    if target.padded_only or target.packed_only:
        found["packed_sequences"] = target.packed_only
    if _computes_again(spec, target):
        found["old_log_probs"] = "recompute"
    on_host = spec.workload.optimizer_cpu_offload
    if on_host and not any(engine.optimizer_cpu_offload for engine in target.training):
        found["optimizer_cpu_offload"] = False
    place = dict(target.kl_places).get(spec.algorithm or "")
    if place is not None and spec.workload.kl != "none":
        found["kl"] = place
    return found


def _computes_again(spec: JobSpec, target: Target) -> bool:
    """Whether a target computes old log-probabilities again, whatever the spec asks for."""
    in_reward = spec.workload.kl == "reward"
    return target.recomputes_log_probs or (target.recomputes_for_reward_kl and in_reward)
