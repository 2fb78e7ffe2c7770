"""What the constraints say of each copy and each call: its pool, its sizes, its settings.

A key of `constraints.pools` and `constraints.parallelism` is a role, a copy (`actor.shadow`) or a
call (`actor.generate`); the more specific key wins. Where a call's id is also a role or a copy, the
key means these.
"""

from automap.planner.dataflow.graph import Call, weights_edge
from automap.planner.job.job import Job
from automap.planner.spec import ParallelismConstraint

ENGINE_SIZES = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "expert_parallel_size",
)
"""How an engine that generates is split; a shadow is split as its engine."""


def shadowed_roles(job: Job) -> list[str]:
    """Roles that may have a shadow: their rollouts follow the training of earlier iterations."""
    spec = job.spec
    if not spec.constraints.allow_shadow_copies or spec.algorithm in job.target.not_apart:
        return []
    return [role for role in job.models if weights_edge(job.dataflow, role) is not None]


def shadow_id(role: str) -> str:
    """The id of a role's shadow."""
    return f"{role}.shadow"


def call_keys(job: Job) -> dict[str, Call]:
    """The calls that a key can name, by id."""
    copies = {*job.models, *map(shadow_id, job.models)}
    return {call.id: call for call in job.dataflow.calls if call.id not in copies}


def model_of(job: Job, key: str) -> str:
    """The role whose weights a key is about."""
    call = call_keys(job).get(key)
    if call is not None and call.model is not None:
        return call.model
    return key if key in job.models else next(r for r in job.models if shadow_id(r) == key)


def home_pins(job: Job, role: str) -> dict[str, str]:
    """Key → pool of all that pins a role's home: the role, and the calls that only it can serve."""
    pools, shadowed = job.spec.constraints.pools, role in shadowed_roles(job)
    calls = [
        call.id
        for call in call_keys(job).values()
        if call.model == role and not (shadowed and call.kind == "generate")
    ]
    return {key: pools[key] for key in (role, *calls) if key in pools}


def generate_pins(job: Job, role: str) -> dict[str, str]:
    """Key → pool of a role's pinned generate calls."""
    pools = job.spec.constraints.pools
    return {
        call.id: pools[call.id]
        for call in call_keys(job).values()
        if call.model == role and call.kind == "generate" and call.id in pools
    }


def home_pool(job: Job, role: str) -> str | None:
    """The pool that a role's home is pinned to; None: to none."""
    return next(iter(home_pins(job, role).values()), None)


def shadow_pool(job: Job, role: str) -> str | None:
    """The pool that a role's shadow is pinned to; None: to none.

    By itself, by a generate call that the pinned home cannot serve, or with its role.
    """
    pools, home = job.spec.constraints.pools, home_pool(job, role)
    if shadow_id(role) in pools:
        return pools[shadow_id(role)]
    away = [pool for pool in generate_pins(job, role).values() if pool != home]
    return away[0] if away and home is not None else pools.get(role)


def may_lie_in(job: Job, role: str, pool: str, *, shadow: bool) -> bool:
    """Whether a role's home or shadow may lie in a pool; a shadow only where a call may run."""
    pinned = shadow_pool(job, role) if shadow else home_pool(job, role)
    if pinned not in (None, pool):
        return False
    rollouts = [c for c in job.dataflow.calls if c.model == role and c.kind == "generate"]
    return not shadow or any(call_pool(job, call) in (None, pool) for call in rollouts)


def call_pool(job: Job, call: Call) -> str | None:
    """The pool that a call itself is pinned to; None: it runs wherever its copies lie."""
    return job.spec.constraints.pools.get(call.id) if call.id in call_keys(job) else None


def home_sizes(job: Job, role: str) -> ParallelismConstraint | None:
    """Sizes that the spec fixes of a role's home."""
    return job.spec.constraints.parallelism.get(role)


def settings(job: Job, call: Call) -> ParallelismConstraint | None:
    """Micro-batch and recomputation that the spec fixes of a train or forward call."""
    of_role, own = job.spec.constraints.parallelism.get(call.role), _own(job, call)
    if of_role is None or own is None:
        return own or of_role
    return of_role.model_copy(update=_given(own))


def engine_sizes(job: Job, call: Call) -> ParallelismConstraint:
    """Sizes that the spec fixes of the engine of a generate call; num_gpus: of its range."""
    of_role = job.spec.constraints.parallelism.get(call.role)
    tensor = None if of_role is None else of_role.generation_tensor_parallel_size
    sizes = ParallelismConstraint(tensor_parallel_size=tensor)
    others = generations(job, call) if shares_engine(job, call) else []
    for each in (*others, call):
        own = _own(job, each)
        sizes = sizes if own is None else sizes.model_copy(update=_given(own))
    return sizes


def generations(job: Job, call: Call) -> list[Call]:
    """The generate calls of a call's model."""
    return [c for c in job.dataflow.calls if c.model == call.model and c.kind == "generate"]


def shares_engine(job: Job, call: Call) -> bool:
    """Whether a call is one of several generations that the target has one engine for."""
    several = call.kind == "generate" and len(generations(job, call)) > 1
    return several and job.target.one_engine


def shadow_sizes(job: Job, role: str) -> list[ParallelismConstraint]:
    """Sizes that a role's shadow may have: its own, and those of a call's engine; none: no shadow.

    One for every generate call that wants others.
    """
    own = job.spec.constraints.parallelism.get(shadow_id(role))
    rollouts = [c for c in job.dataflow.calls if c.model == role and c.kind == "generate"]
    found: list[ParallelismConstraint] = []
    for call in rollouts:
        sizes = engine_sizes(job, call)
        if own is not None and differing(own, sizes):
            continue
        both = sizes if own is None else sizes.model_copy(update=_given(own))
        if both not in found:
            found.append(both)
    return found


def differing(one: ParallelismConstraint, other: ParallelismConstraint) -> list[str]:
    """The fields that both fix, to different values."""
    wanted = _given(other)
    return [name for name, value in _given(one).items() if wanted.get(name, value) != value]


def _own(job: Job, call: Call) -> ParallelismConstraint | None:
    """What the spec fixes of this call alone."""
    keys = call_keys(job)
    return job.spec.constraints.parallelism.get(call.id) if call.id in keys else None


def _given(sizes: ParallelismConstraint) -> dict[str, object]:
    return {name: value for name, value in sizes if value is not None}
