"""Rules on what a plan refers to: every call, copy, pool and weight sync is there and fits."""

import math
from collections import Counter
from collections.abc import Iterator

from automap.planner.check.subject import sync_name
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job
from automap.planner.plan.types import CallPlan, CopyPlan, Plan


def broken_references(job: Job, plan: Plan) -> Iterator[str]:
    """What must hold before any other rule can be read: names, numbers and bindings."""
    yield from _numbers_are_finite(plan)
    yield from _calls_are_the_dataflows(job, plan)
    yield from _copies_are_the_models(job, plan)
    yield from _pools_are_real(job, plan)
    yield from _calls_have_their_copy(job, plan)
    yield from _calls_have_their_settings(job, plan)
    yield from _shadows_are_synced_and_used(job, plan)


def _numbers_are_finite(plan: Plan) -> Iterator[str]:
    seconds = {"iteration_seconds": plan.iteration_seconds}
    for name in ("lower_bound_seconds", "relative_gap", "tokens_per_second", "run_seconds"):
        seconds[name] = getattr(plan, name)
    for name in ("price_per_iteration", "price_per_million_tokens", "run_price"):
        seconds[name] = getattr(plan, name)
    for call in plan.calls:
        seconds[f"start_seconds of call {call.id}"] = call.start_seconds
        seconds[f"end_seconds of call {call.id}"] = call.end_seconds
    for sync in plan.transitions:
        seconds[f"start_seconds of {sync_name(sync)}"] = sync.start_seconds
        seconds[f"end_seconds of {sync_name(sync)}"] = sync.end_seconds
    for name, value in seconds.items():
        if not math.isfinite(value):
            yield f"{name} is {value}, not a finite number"
    if not plan.iteration_seconds > 0:
        yield f"iteration_seconds is {plan.iteration_seconds}, not positive"


def _calls_are_the_dataflows(job: Job, plan: Plan) -> Iterator[str]:
    """Every call of the dataflow once, with its role and kind, and no other."""
    times = Counter(call.id for call in plan.calls)
    wanted = {call.id: call for call in job.dataflow.calls}
    for name in wanted:
        if times[name] != 1:
            yield f"call {name} of the dataflow appears {times[name]} times, not once"
    for call in plan.calls:
        if call.id not in wanted:
            yield f"call {call.id} is not in the dataflow"
        elif (call.role, call.kind) != (wanted[call.id].role, wanted[call.id].kind):
            yield (
                f"call {call.id} is {call.kind} of {call.role}, but the dataflow has "
                f"{wanted[call.id].kind} of {wanted[call.id].role}"
            )


def _copies_are_the_models(job: Job, plan: Plan) -> Iterator[str]:
    """One home per model with weights; ids are unique; shadows belong to models that train."""
    for name, times in Counter(copy.id for copy in plan.copies).items():
        if times > 1:
            yield f"{times} copies have the id {name}"
    homes = Counter(copy.role for copy in plan.copies if copy.kind == "home")
    for role in job.models:
        if homes[role] != 1:
            yield f"model {role} has {homes[role]} homes, not one"
    for copy in plan.copies:
        if copy.role not in job.models:
            yield f"copy {copy.id} is of {copy.role}, which is no model of the job"
        elif copy.kind == "shadow" and not job.models[copy.role].trainable:
            yield f"copy {copy.id} is a shadow of {copy.role}, which does not train"


def _pools_are_real(job: Job, plan: Plan) -> Iterator[str]:
    names = [pool.name for pool in job.pools]
    for copy in plan.copies:
        if copy.pool not in names:
            yield f"copy {copy.id} lies in pool {copy.pool}; the pools are {', '.join(names)}"


def _calls_have_their_copy(job: Job, plan: Plan) -> Iterator[str]:
    """A call runs on a copy of the model that serves it; only generate runs on a shadow."""
    copies = {copy.id: copy for copy in plan.copies}
    for call, wanted in _known_calls(job, plan):
        if wanted.model is None:
            if call.copy_id is not None:
                yield f"call {call.id} is a function, but is bound to copy {call.copy_id}"
        elif call.copy_id is None or call.copy_id not in copies:
            yield f"call {call.id} is bound to {call.copy_id}, which is no copy of the plan"
        else:
            yield from _copy_serves(call, wanted.model, copies[call.copy_id])


def _copy_serves(call: CallPlan, model: str, copy: CopyPlan) -> Iterator[str]:
    if copy.role != model:
        yield (
            f"call {call.id} needs the weights of {model}, but copy {copy.id} holds those of "
            f"{copy.role}"
        )
    if copy.kind == "shadow" and call.kind != "generate":
        yield f"call {call.id} is {call.kind}, but copy {copy.id} is a shadow, only for generate"


def _calls_have_their_settings(job: Job, plan: Plan) -> Iterator[str]:
    """What the cost model needs: a layout, and micro-batch, recomputation or cache by kind."""
    needed = {
        "train": ("parallelism", "micro_batch_size", "recompute"),
        "forward": ("parallelism", "micro_batch_size"),
        "generate": ("parallelism", "kv_cache_bytes"),
    }
    for call, wanted in _known_calls(job, plan):
        if wanted.model is not None:
            for name in needed[wanted.kind]:
                if getattr(call, name) is None:
                    yield f"call {call.id} is {wanted.kind} and has no {name}"
        if call.tail is not None and wanted.kind != "generate":
            yield f"call {call.id} is {wanted.kind} and has a tail, which only generate has"


def _known_calls(job: Job, plan: Plan) -> Iterator[tuple[CallPlan, Call]]:
    wanted = {call.id: call for call in job.dataflow.calls}
    for call in plan.calls:
        if call.id in wanted:
            yield call, wanted[call.id]


def _shadows_are_synced_and_used(job: Job, plan: Plan) -> Iterator[str]:
    """Every shadow has one weight sync, from its home, and serves a call."""
    copies = {copy.id: copy for copy in plan.copies}
    targets = Counter(sync.target_copy for sync in plan.transitions)
    for copy in plan.copies:
        if copy.kind == "shadow":
            if targets[copy.id] != 1:
                yield f"shadow {copy.id} has {targets[copy.id]} weight syncs, not one"
            if all(call.copy_id != copy.id for call in plan.calls):
                yield f"shadow {copy.id} serves no call"
    for sync in plan.transitions:
        source, target = copies.get(sync.source_copy), copies.get(sync.target_copy)
        ends_right = (
            source is not None
            and target is not None
            and (source.kind, target.kind) == ("home", "shadow")
            and source.role == target.role == sync.role
        )
        if not ends_right:
            yield f"{sync_name(sync)} does not lead from the home of {sync.role} to its shadow"
