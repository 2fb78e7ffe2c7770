"""What would change a job's time: one change after another, each solved, the best first."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Literal

from pydantic import Field, ValidationError

from automap.planner.errors import PlanningError, SpecError
from automap.planner.infeasible.changes import (
    Change,
    across_nodes,
    adapters,
    faster_gpus,
    nothing_kept_free,
    optimizer_on_host,
    permissions,
    pools_of,
    smaller_rollout,
    with_nodes,
)
from automap.planner.infeasible.reasons import causes
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Plan, ResultModel
from automap.planner.planning import end_of_pricing, make_plan_of
from automap.planner.search import price_candidates
from automap.planner.spec import MAX_NODES, JobSpec, TargetName, need_spec
from automap.planner.studies.schedules import USUAL_STALENESS
from automap.planner.targets.tables import TARGETS, filled_in, inside

LeverKind = Literal[
    "asynchrony",
    "loss",
    "precision",
    "engine",
    "permission",
    "schedule",
    "adapters",
    "nodes",
    "gpu",
]
"""What a lever is about."""
RISKS: dict[LeverKind, str] = {
    "asynchrony": "learning: responses come from older weights",
    "loss": "learning: the loss is another one",
    "precision": "numerics: of the probabilities of the rollout, or of gradients",
    "engine": "software: another engine to install and to trust",
    "permission": "none for what is learned",
    "schedule": "learning: iterations overlap, and with streams nobody's executor runs it yet",
    "adapters": "learning: adapters are trained in place of all parameters",
    "nodes": "cost: see the price",
    "gpu": "cost: see the price",
}
STALENESSES = (1, 2, 4, 8)
"""What rollouts may lag behind by: the next larger one is tried."""
REFERENCE = "reference"
FASTER_GPUS = 2
"""Types of GPU that are tried beside the job's own: the next faster ones."""


class Lever(ResultModel):
    """One change to a job, and its best plan then."""

    kind: LeverKind
    text: str
    """The change, as a user would make it in the spec."""
    risk: str
    """What else it changes, in words."""
    gain: float | None = None
    """How much less the objective is, as a share of the job's own; below 0: more. None: no plan."""
    objective_value: float | None = None
    iteration_seconds: float | None = None
    price_per_iteration: float | None = None
    gpus_used: int | None = None
    out_of_memory_probability: float | None = None
    proven: bool = False
    """True where both plans are proven, so that the gain is exact for these prices."""
    reason: str = ""
    """Why there is no plan."""


class Levers(ResultModel):
    """A job's best plan inside a target, and what would change it."""

    schema_version: Literal[1] = 1
    target: TargetName
    plan: Plan | None
    """Absent where the job has no plan there."""
    reason: str = ""
    """Why there is no plan."""
    levers: list[Lever] = Field(default_factory=list)
    """What gains most first; without a plan last. Gains do not add up."""
    seconds: float = 0.0
    """Wall seconds that all plans together took."""


def levers(
    spec: JobSpec, target: TargetName, *, tell: Callable[[str], None] = lambda _: None
) -> Levers:
    """The best plan of a job inside a target, and what each change to it would bring.

    Asynchrony, losses with fewer passes, rollouts and products of fewer bits, other
    engines, what the constraints forbid, adapters, half and twice the nodes, and faster GPUs. What
    the target cannot run is left out. Every plan has the spec's time limit, and none is simplified,
    as what is compared are optima.

    Args:
        spec: The job; its own `search.target` does not count.
        target: What is to run it.
        tell: Hears how far it is.
    """
    started = time.perf_counter()
    need_spec(spec)
    spec = _searched(inside(spec, target), simplicity_tolerance=0.0)
    assert spec.search.target is not None, "it is inside of one"
    target = spec.search.target
    try:
        plan = _best(spec)
    except PlanningError as error:
        seconds = time.perf_counter() - started
        return Levers(target=target, plan=None, reason=str(error), seconds=seconds)
    found = []
    for kind, change in changes(spec):
        tell(f"{target}: {change.text}")
        lever = _lever(kind, change, plan)
        if lever is not None:
            found.append(lever)
    return Levers(
        target=target,
        plan=plan,
        levers=sorted(found, key=lambda each: -(-1e9 if each.gain is None else each.gain)),
        seconds=time.perf_counter() - started,
    )


def changes(spec: JobSpec) -> Iterator[tuple[LeverKind, Change]]:
    """Every change that is tried, whether or not the target can run it."""
    job, workload = resolve(spec), spec.workload
    if job.dataflow.allows_staleness:
        yield from (("asynchrony", change) for change in _older(spec))
    yield from (("loss", change) for change in _fewer_passes(spec))
    for change in smaller_rollout(spec):
        yield "precision", change
    if workload.training_precision in (None, workload.precision):
        text = "multiply in 8 bits where models train (workload.training_precision: fp8)"
        yield "precision", Change(("precision",), text, _worked(spec, training_precision="fp8"))
    for engine in ("vllm", "sglang", "trtllm"):
        if engine != workload.rollout_engine:
            text = f"generate with {engine} (workload.rollout_engine: {engine})"
            yield "engine", Change(("target",), text, _worked(spec, rollout_engine=engine))
    if workload.training_stack is not None:
        text = "let the plan choose each model's engine (leave out workload.training_stack)"
        yield "engine", Change(("target",), text, _worked(spec, training_stack=None))
    allowed = (permissions, across_nodes, optimizer_on_host, nothing_kept_free)
    yield from (("permission", change) for kind in allowed for change in kind(spec))
    if not spec.search.streaming:
        text = "score responses while others are generated (search.streaming: true)"
        yield "schedule", Change(("target",), text, _searched(spec, streaming=True))
    for change in adapters(spec):
        yield "adapters", change
    yield from _other_clusters(spec)


def _older(spec: JobSpec) -> Iterator[Change]:
    """Rollouts of older weights, and such as never drain."""
    search = spec.search
    older = next((each for each in STALENESSES if each > search.staleness), None)
    if older is not None:
        iterations = "iteration" if older == 1 else "iterations"
        text = f"let rollouts be {older} {iterations} old (search.staleness: {older})"
        changed = _searched(spec, staleness=older)
        if search.target is not None and not search.continuous_rollouts:
            flows = filled_in(changed, TARGETS[search.target]).search.continuous_rollouts
            text += ", and so generate without batches" if flows else ""
        yield Change(("target",), text, changed)
    if not search.continuous_rollouts:
        staleness = max(search.staleness, USUAL_STALENESS)
        text = (
            f"generate without batches (search.continuous_rollouts: true, staleness: {staleness})"
        )
        values = {"continuous_rollouts": True, "staleness": staleness}
        yield Change(("target",), text, _searched(spec, **values))
    elif not search.keep_cache_at_sync:
        text = "keep caches when weights come (search.keep_cache_at_sync: true)"
        yield Change(("target",), text, _searched(spec, keep_cache_at_sync=True))


def _fewer_passes(spec: JobSpec) -> Iterator[Change]:
    """Losses that need no second pass of the actor, or none of a reference."""
    calls = len(resolve(spec).dataflow.calls)
    old = _worked(spec, old_log_probs="rollout")
    text = "take old log-probabilities from the rollout (workload.old_log_probs: rollout)"
    without = _without_reference(spec)
    for changed, told in ((old, text), (without, "train without a reference (workload.kl: none)")):
        if _is_valid(changed) and len(resolve(changed).dataflow.calls) < calls:
            yield Change(("target",), told, changed)


def _without_reference(spec: JobSpec) -> JobSpec:
    """The job without its reference, and without what its constraints say of that."""
    limits = spec.constraints
    kept: dict[str, object] = {
        name: {role: each for role, each in getattr(limits, name).items() if role != REFERENCE}
        for name in ("pools", "parallelism")
    }
    kept |= {
        name: [pair for pair in getattr(limits, name) if REFERENCE not in pair]
        for name in ("colocate", "separate")
    }
    update = {
        "models": {role: each for role, each in spec.models.items() if role != REFERENCE},
        "constraints": limits.model_copy(update=kept),
    }
    return _worked(spec, kl="none").model_copy(update=update)


def _other_clusters(spec: JobSpec) -> Iterator[tuple[LeverKind, Change]]:
    """Half and twice the nodes of every pool, and the next faster types of GPU."""
    for pool in pools_of(spec):
        for nodes in (pool.num_nodes // 2, 2 * pool.num_nodes):
            if 1 <= nodes <= MAX_NODES and nodes != pool.num_nodes:
                text = f"use {nodes} nodes in pool {pool.name}, {pool.num_nodes} now"
                yield "nodes", Change(("nodes",), text, with_nodes(spec, pool, nodes))
        usable = (each for each in faster_gpus(spec, pool) if _is_valid(each.spec))
        for change in itertools.islice(usable, FASTER_GPUS):
            yield "gpu", change


def _is_valid(spec: JobSpec) -> bool:
    try:
        resolve(JobSpec.model_validate(spec.model_dump(by_alias=True)))
    except (SpecError, ValidationError):
        return False
    return True


def _searched(spec: JobSpec, **values: object) -> JobSpec:
    return spec.model_copy(update={"search": spec.search.model_copy(update=values)})


def _worked(spec: JobSpec, **values: object) -> JobSpec:
    return spec.model_copy(update={"workload": spec.workload.model_copy(update=values)})


def _lever(kind: LeverKind, change: Change, base: Plan) -> Lever | None:
    """The change solved; None where the spec or the target does not have it."""
    lever = Lever(kind=kind, text=change.text, risk=RISKS[kind])
    if not _is_valid(change.spec):
        return None
    try:
        plan = _best(change.spec)
    except PlanningError as error:
        return lever.model_copy(update={"reason": str(error)})
    value, own = plan.search.objective_value, base.search.objective_value
    return lever.model_copy(
        update={
            "gain": 1.0 - value / own if own else 0.0,
            "objective_value": value,
            "iteration_seconds": plan.iteration_seconds,
            "price_per_iteration": plan.price_per_iteration,
            "gpus_used": plan.gpus_used,
            "out_of_memory_probability": plan.out_of_memory_probability,
            "proven": plan.search.status == base.search.status == "optimal",
        }
    )


def _best(spec: JobSpec) -> Plan:
    began = time.perf_counter()
    job = resolve(spec)
    tables = price_candidates(job, deadline=end_of_pricing(job, began))
    return make_plan_of(job, tables, pricing_seconds=time.perf_counter() - began, explain=causes)
