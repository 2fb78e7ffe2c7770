"""Checks of the keys of constraints.pools and constraints.parallelism: roles, copies and calls."""

import difflib
from collections.abc import Iterable

from automap.planner.errors import SpecError
from automap.planner.job import pins
from automap.planner.job.job import Job
from automap.planner.spec import ParallelismConstraint

FIELDS_OF_CALLS = {
    "generate": ("num_gpus", *pins.ENGINE_SIZES),
    "forward": ("micro_batch_size",),
    "train": ("micro_batch_size", "recompute"),
}
"""What constraints.parallelism may fix of a call by its kind; of a shadow as of a generate call."""


def check_keys(job: Job) -> None:
    """Refuse keys that name nothing of the job, and what cannot be fixed of what they name.

    Raises:
        SpecError: with the path of the constraint.
    """
    constraints = job.spec.constraints
    for key in constraints.pools:
        _check_key(job, key, f"constraints.pools.{key}")
    pools = [pool.name for pool in job.pools]
    for key, name in constraints.pools.items():
        if name not in pools:
            raise SpecError(
                f"constraints.pools.{key}",
                f"the cluster has no pool {name!r}",
                remedy=f"use one of {', '.join(pools)}",
            )
    for key, sizes in constraints.parallelism.items():
        _check_key(job, key, f"constraints.parallelism.{key}")
        _check_fields(job, key, sizes)


def check_pins(job: Job) -> None:
    """Refuse pins of one role, or sizes of its engine, that its copies cannot all obey.

    Raises:
        SpecError: with the path of the constraint.
    """
    for role in job.models:
        _check_home(job, role)
        _check_rollouts(job, role)
        _check_engines(job, role)


def why_without_weights(job: Job, role: str) -> str:
    """What a name is instead of a role that holds weights on GPUs."""
    if role in job.spec.models and not job.spec.models[role].needs_gpus:
        what = "function" if job.spec.models[role].function else "remote service"
        return f"is a {what} and occupies no GPU"
    if role in job.spec.models:
        return "is not used by this job (workload.kl none drops the reference)"
    if any(call.role == role for call in job.dataflow.calls):
        return "is served by the actor's base weights and has no copy of its own"
    return "is not a role of this job"


def _check_key(job: Job, key: str, field: str) -> None:
    calls, shadows = pins.call_keys(job), [pins.shadow_id(r) for r in pins.shadowed_roles(job)]
    if key in job.models or key in shadows:
        return
    if key in calls and calls[key].model is not None:
        return
    known = [*job.models, *shadows, *(call.id for call in calls.values() if call.model)]
    shadowed = next((role for role in job.models if key == pins.shadow_id(role)), None)
    if key in calls:
        reason = "needs no GPU: its model is a function or a remote service"
    elif shadowed is not None:
        reason = f"cannot exist: {_why_no_shadow(job, shadowed)}"
    elif any(key in names for names in (job.spec.models, {c.role for c in job.dataflow.calls})):
        reason = why_without_weights(job, key)
    else:
        reason = "is no role, copy or call of this job"
    raise SpecError(field, f"{key} {reason}", remedy=_meant(key, known))


def _meant(key: str, known: Iterable[str]) -> str:
    """The known names, the one that is spelt most alike first."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    asked = f"did you mean {close[0]}? else " if close else ""
    return f"{asked}use one of {', '.join(names)}"


def _why_no_shadow(job: Job, role: str) -> str:
    if not job.spec.constraints.allow_shadow_copies:
        return "constraints.allow_shadow_copies is false"
    kinds = {call.kind for call in job.dataflow.calls if call.model == role}
    if "generate" not in kinds:
        return f"only a model that generates has a shadow, and {role} does not"
    if "train" not in kinds:
        return f"a shadow follows the training of its role, and nothing trains {role}"
    return f"the rollouts of {role} do not all follow one training of an earlier iteration"


def _check_fields(job: Job, key: str, sizes: ParallelismConstraint) -> None:
    """Refuse fields that a call of this kind, or a shadow, does not have."""
    if key in job.models:
        return
    calls = pins.call_keys(job)
    kind = calls[key].kind if key in calls else "generate"
    for name, value in sizes:
        if value is None or name in FIELDS_OF_CALLS[kind]:
            continue
        remedy = f"use {', '.join(FIELDS_OF_CALLS[kind])}"
        if name == "generation_tensor_parallel_size":
            remedy = "write tensor_parallel_size" if kind == "generate" else "leave it out"
        elif kind != "generate":
            home = f"constraints.parallelism.{calls[key].model}"
            remedy = f"{remedy}; sizes of the home, on which it runs, are those of {home}"
        what = f"a {kind} call" if key in calls else "a shadow"
        raise SpecError(
            f"constraints.parallelism.{key}.{name}",
            f"{value} cannot be fixed of {what}",
            remedy=remedy,
        )


def _check_home(job: Job, role: str) -> None:
    """Refuse different pools for what only a role's home can serve."""
    (first, pool), *others = pins.home_pins(job, role).items() or [("", "")]
    for key, other in others:
        if other == pool:
            continue
        rollout = key in pins.generate_pins(job, role)
        why = (
            f"{role} has no shadow: {_why_no_shadow(job, role)}"
            if rollout
            else f"both are about the home of {role}, and only a generate call may run elsewhere"
        )
        raise SpecError(
            f"constraints.pools.{key}",
            f"{key} is pinned to {other} and {first} to {pool}, but {why}",
            remedy=f"use {pool}, or change constraints.pools.{first}",
        )


def _check_rollouts(job: Job, role: str) -> None:
    """Refuse generate calls in more pools than a home and a shadow can lie in."""
    if role not in pins.shadowed_roles(job):
        return
    home, shadow = pins.home_pool(job, role), job.spec.constraints.pools.get(pins.shadow_id(role))
    if not any(pins.may_lie_in(job, role, pool.name, shadow=True) for pool in job.pools):
        rollouts = pins.generate_pins(job, role)
        raise SpecError(
            f"constraints.pools.{pins.shadow_id(role)}",
            f"the shadow is pinned to {shadow}, but what it could serve is pinned elsewhere: "
            f"{', '.join(f'{key} to {pool}' for key, pool in rollouts.items())}",
            remedy=f"use {' or '.join(dict.fromkeys(rollouts.values()))}, or leave one out",
        )
    taken = [pool for pool in (home, shadow) if pool is not None]
    free = 2 - len(taken)
    for key, pool in pins.generate_pins(job, role).items():
        if pool in taken:
            continue
        if free == 0:
            raise SpecError(
                f"constraints.pools.{key}",
                f"{key} is pinned to {pool}, but {role} has one home and one shadow, and the "
                f"constraints put them in {' and '.join(dict.fromkeys(taken))}",
                remedy=f"use {' or '.join(dict.fromkeys(taken))}",
            )
        taken.append(pool)
        free -= 1


def _check_engines(job: Job, role: str) -> None:
    """Refuse sizes of a generate call that contradict those of the copy that must serve it."""
    constraints = job.spec.constraints
    rollouts = [c for c in job.dataflow.calls if c.model == role and c.kind == "generate"]
    shadow = constraints.parallelism.get(pins.shadow_id(role))
    own = constraints.parallelism.get(role)
    for call in rollouts:
        sizes, home = pins.engine_sizes(job, call), pins.home_pool(job, role)
        away = home is not None and pins.call_pool(job, call) not in (None, home)
        needs_shadow = away or len(rollouts) == 1
        if shadow is not None and needs_shadow:
            _refuse_differing(job, pins.shadow_id(role), shadow, call.id, sizes)
        if own is not None and role not in pins.shadowed_roles(job):
            of_home = ParallelismConstraint(num_gpus=own.num_gpus)
            _refuse_differing(job, call.id, sizes, role, of_home)


def _refuse_differing(
    job: Job, key: str, sizes: ParallelismConstraint, other: str, others: ParallelismConstraint
) -> None:
    for name in pins.differing(sizes, others):
        wanted = getattr(others, name)
        raise SpecError(
            f"constraints.parallelism.{key}.{name}",
            f"{getattr(sizes, name)} contradicts {name} {wanted} of {other}, and no other copy of "
            "the model can serve the call",
            remedy=f"use {wanted}, or leave one of the two out",
        )
