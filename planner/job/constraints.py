"""Checks that the constraints of a spec fit the job and one another, before any search."""

from itertools import combinations
from math import prod

from automap.planner.catalogue.hardware import Pool
from automap.planner.errors import SpecError
from automap.planner.job import pins
from automap.planner.job.job import Job, Model
from automap.planner.job.pin_checks import check_keys, check_pins, why_without_weights
from automap.planner.spec import ParallelismConstraint


def check_constraints(job: Job) -> None:
    """Refuse constraints that name what the job lacks or that no plan could satisfy.

    Raises:
        SpecError: with the path of the constraint.
    """
    check_keys(job)
    _check_pairs(job)
    check_pins(job)
    groups = _colocated_groups(job)
    _check_separate(job, groups)
    _check_colocated_sizes(job, groups)
    for key, sizes in job.spec.constraints.parallelism.items():
        _check_parallelism(job, key, sizes)
    _check_even_updates(job)


def _check_pairs(job: Job) -> None:
    """Refuse pairs that name one role twice, or what has no weights."""
    for kind in ("colocate", "separate"):
        for index, pair in enumerate(getattr(job.spec.constraints, kind)):
            field = f"constraints.{kind}.{index}"
            if pair[0] == pair[1]:
                raise SpecError(field, f"names {pair[0]} twice", remedy="name two roles")
            for role in pair:
                if role not in job.models:
                    raise SpecError(
                        field,
                        f"{role} {why_without_weights(job, role)}",
                        remedy=f"use one of {', '.join(job.models)}",
                    )


def _colocated_groups(job: Job) -> dict[str, frozenset[str]]:
    """Map each role to all roles that must share its range, through any chain of pairs."""
    groups = {role: frozenset([role]) for role in job.models}
    for first, second in job.spec.constraints.colocate:
        merged = groups[first] | groups[second]
        groups.update(dict.fromkeys(merged, merged))
    return groups


def _check_separate(job: Job, groups: dict[str, frozenset[str]]) -> None:
    for index, (first, second) in enumerate(job.spec.constraints.separate):
        if second in groups[first]:
            raise SpecError(
                f"constraints.separate.{index}",
                f"{first} and {second} are to be separate, but constraints.colocate joins them",
                remedy="remove the pair from one of the two",
            )


def _check_colocated_sizes(job: Job, groups: dict[str, frozenset[str]]) -> None:
    """Refuse colocated roles that are pinned to different pools or numbers of GPUs."""
    parallelism = job.spec.constraints.parallelism
    pinned = {role: next(iter(pins.home_pins(job, role).items()), None) for role in job.models}
    for first, second in combinations(job.models, 2):
        if second not in groups[first]:
            continue
        one, other = pinned[first], pinned[second]
        if one is not None and other is not None and one[1] != other[1]:
            raise SpecError(
                f"constraints.pools.{other[0]}",
                f"{other[0]} is pinned to {other[1]} and {one[0]} to {one[1]}, but "
                f"constraints.colocate joins {first} and {second}",
                remedy="pin both to one pool, or do not colocate them",
            )
        if first not in parallelism or second not in parallelism:
            continue
        counts = [_fixed_num_gpus(parallelism[role]) for role in (first, second)]
        if None not in counts and counts[0] != counts[1]:
            raise SpecError(
                f"constraints.parallelism.{second}.num_gpus",
                f"{second} is to have {counts[1]} GPUs and {first} {counts[0]}, but "
                "constraints.colocate puts them on the same range",
                remedy="give both the same number, or do not colocate them",
            )


def _fixed_num_gpus(sizes: ParallelismConstraint) -> int | None:
    """GPUs that a constraint fixes, as a number or by all sizes; None if it leaves them open."""
    if sizes.num_gpus is None and None in _factors(sizes).values():
        return None
    return _num_gpus(sizes)


def _num_gpus(sizes: ParallelismConstraint) -> int:
    """The fewest GPUs that a constraint allows."""
    return sizes.num_gpus or prod(size or 1 for size in _factors(sizes).values())


def _factors(sizes: ParallelismConstraint) -> dict[str, int | None]:
    """The sizes whose product is num_gpus."""
    return {
        "tensor_parallel_size": sizes.tensor_parallel_size,
        "pipeline_parallel_size": sizes.pipeline_parallel_size,
        "context_parallel_size": sizes.context_parallel_size,
        "data_parallel_size": sizes.data_parallel_size,
    }


def _check_parallelism(job: Job, key: str, sizes: ParallelismConstraint) -> None:
    field, model = f"constraints.parallelism.{key}", job.models[pins.model_of(job, key)]
    _check_product(sizes, field=field)
    _check_model_divides(model, sizes, field=field)
    if key == model.role:
        _check_kind(job, model, sizes, field=field)
        _check_batch(job, model, sizes, field=field)
    _check_recompute(job, sizes, field=field)
    pools = [pool for pool in job.pools if _may_be_in(job, key, model.role, pool.name)]
    _check_pools_hold(job, pools, sizes, field=field)


def _may_be_in(job: Job, key: str, role: str, pool: str) -> bool:
    """Whether what a key of constraints.parallelism names may lie, or run, in a pool."""
    call = pins.call_keys(job).get(key)
    if call is not None and pins.call_pool(job, call) is not None:
        return pins.call_pool(job, call) == pool
    copies = (False, True) if call is not None else (key != role,)
    return any(pins.may_lie_in(job, role, pool, shadow=shadow) for shadow in copies)


def _check_product(sizes: ParallelismConstraint, *, field: str) -> None:
    """Refuse sizes that do not multiply to num_gpus or, where some are free, do not divide it."""
    given = {name: size for name, size in _factors(sizes).items() if size is not None}
    product = prod(given.values())
    if sizes.num_gpus is None:
        return
    complete = len(given) == len(_factors(sizes))
    if (complete and product != sizes.num_gpus) or sizes.num_gpus % product:
        names = " × ".join(name.removesuffix("_parallel_size") for name in given)
        raise SpecError(
            f"{field}.num_gpus",
            f"{names} = {product}, but num_gpus is {sizes.num_gpus}",
            remedy=f"set num_gpus to {'' if complete else 'a multiple of '}{product}, "
            "or leave one of them free",
        )


def _check_model_divides(model: Model, sizes: ParallelismConstraint, *, field: str) -> None:
    """Refuse sizes over which heads or experts do not split evenly, or stages without a layer."""
    shape = model.architecture
    for name in ("tensor_parallel_size", "generation_tensor_parallel_size"):
        size = getattr(sizes, name)
        if size is not None and shape.num_attention_heads % size:
            raise SpecError(
                f"{field}.{name}",
                f"{size} does not divide the {shape.num_attention_heads} attention heads of "
                f"{model.role}",
                remedy=f"use one of {_divisors(shape.num_attention_heads)}",
            )
    stages = sizes.pipeline_parallel_size
    if stages is not None and stages > shape.num_layers:
        raise SpecError(
            f"{field}.pipeline_parallel_size",
            f"{stages} stages for the {shape.num_layers} layers of {model.role}",
            remedy=f"use at most {shape.num_layers}",
        )
    experts = sizes.expert_parallel_size
    if (
        experts is not None
        and experts > 1
        and (not shape.num_experts or shape.num_experts % experts)
    ):
        raise SpecError(
            f"{field}.expert_parallel_size",
            f"{experts} does not divide the {shape.num_experts} experts of {model.role}",
            remedy=f"use one of {_divisors(shape.num_experts)}" if shape.num_experts else "use 1",
        )


def _divisors(number: int) -> str:
    return ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)


def _check_kind(job: Job, model: Model, sizes: ParallelismConstraint, *, field: str) -> None:
    """Refuse training settings of roles that do not train, and generation sizes of others."""
    generates = any(c.model == model.role and c.kind == "generate" for c in job.dataflow.calls)
    if sizes.generation_tensor_parallel_size is not None and not generates:
        raise SpecError(
            f"{field}.generation_tensor_parallel_size",
            f"{model.role} does not generate",
            remedy="leave it out",
        )
    training = {
        "recompute": sizes.recompute not in (None, "none"),
        "sharding": sizes.sharding in ("optimizer", "gradient"),
    }
    for name, is_set in training.items():
        if is_set and not model.trainable:
            raise SpecError(
                f"{field}.{name}",
                f"{getattr(sizes, name)} is for training, and {model.role} does not train",
                remedy="leave it out",
            )


def _check_recompute(job: Job, sizes: ParallelismConstraint, *, field: str) -> None:
    if sizes.recompute not in (None, "none") and not job.spec.constraints.allow_recompute:
        raise SpecError(
            f"{field}.recompute",
            f"{sizes.recompute} contradicts constraints.allow_recompute false",
            remedy="leave one of the two out",
        )


def _check_batch(job: Job, model: Model, sizes: ParallelismConstraint, *, field: str) -> None:
    """Refuse more data-parallel ranks than an update has sequences."""
    ranks = sizes.data_parallel_size
    sequences = job.spec.workload.sequences_per_update
    if ranks is None or not model.trainable:
        return
    if ranks > sequences:
        raise SpecError(
            f"{field}.data_parallel_size",
            f"{ranks} data-parallel ranks, but an update has {sequences} sequences",
            remedy=f"use at most {sequences}, or fewer workload.updates_per_epoch",
        )
    rows = ranks * (sizes.micro_batch_size or 1)
    if job.spec.constraints.require_even_batch and sequences % rows:
        raise SpecError(
            f"{field}.data_parallel_size",
            f"require_even_batch: {rows} (data parallel × micro-batch) does not divide the "
            f"{sequences} sequences of an update",
            remedy=f"use a product that divides {sequences}",
        )


def _check_pools_hold(
    job: Job, pools: list[Pool], sizes: ParallelismConstraint, *, field: str
) -> None:
    """Refuse sizes that no allowed pool has the GPUs, or the NVLink domain, for."""
    most = max(pool.num_gpus - pool.kept_free_gpus for pool in pools)
    wanted = _num_gpus(sizes)
    if wanted > most:
        raise SpecError(
            field if sizes.num_gpus is None else f"{field}.num_gpus",
            f"{wanted} GPUs are wanted, but {', '.join(pool.name for pool in pools)} has at most "
            f"{most} usable ones, and a model stays in one pool",
            remedy=f"use at most {most}",
        )
    domain = max(pool.nvlink_domain_gpus for pool in pools)
    for name in ("tensor_parallel_size", "generation_tensor_parallel_size"):
        size = getattr(sizes, name)
        crosses = size is not None and size > domain
        if crosses and not job.spec.constraints.tensor_parallel_across_nodes:
            raise SpecError(
                f"{field}.{name}",
                f"{size} GPUs do not fit in an NVLink domain of {domain}",
                remedy=f"use at most {domain}, or set tensor_parallel_across_nodes",
            )


def _check_even_updates(job: Job) -> None:
    workload = job.spec.workload
    uneven = workload.num_sequences % workload.updates_per_epoch
    if job.spec.constraints.require_even_batch and uneven:
        raise SpecError(
            "workload.updates_per_epoch",
            f"require_even_batch: {workload.updates_per_epoch} updates do not divide the "
            f"{workload.num_sequences} sequences of an iteration",
            remedy=f"use a divisor of {workload.num_sequences}",
        )
