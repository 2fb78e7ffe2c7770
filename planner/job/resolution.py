"""From a job spec to a Job: the algorithm traced, every name looked up, the whole spec checked."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.dataflow.algorithms import PROGRAMS
from automap.planner.dataflow.algorithms.program import Program
from automap.planner.dataflow.explicit import explicit_dataflow
from automap.planner.dataflow.graph import (
    MAX_SEQUENCES,
    Call,
    Dataflow,
    in_turns,
    weights_edge,
    with_streaming,
)
from automap.planner.dataflow.trace import trace
from automap.planner.errors import SpecError
from automap.planner.job.constraints import check_constraints
from automap.planner.job.job import Job, Model
from automap.planner.job.targets import UNKNOWN, refusal, target_of
from automap.planner.profiles.folder import SHIPPED, profile_folder
from automap.planner.spec import ClusterSpec, JobSpec, ModelSpec, PoolSpec, WorkloadSpec, need_spec
from automap.planner.spec.lengths import ASSUMED_SPREAD
from automap.planner.targets.tables import FRAMEWORKS, TARGETS, filled_in
from automap.planner.targets.target import Target, pools_of_cores

SLOWEST_LINK_BYTES_PER_SECOND = 1e6
"""Slowest link that is believed, 8 Mbit/s, less than the first Ethernet had: a lower value is in
another unit."""
SCALAR_ROLES = frozenset({"critic", "reward", "cost"})
"""Words that give a role one output per token where its name has one of them (cost_critic)."""


def resolve(spec: JobSpec, *, program: Program | None = None, with_profiles: bool = True) -> Job:
    """The job that a spec describes; `program` replaces the built-in of that name.

    What the spec leaves open of the workload is as its target has it: the one that it names, or
    where it names none and automap cannot run it, the first that can. Without `with_profiles` the
    folders of measured profiles are not looked at: nothing is priced.

    Raises:
        SpecError: a name is unknown, a role is missing or superfluous, or parts contradict one
            another. The first mistake found, with its field and what would be valid.
        TypeError: it is no spec, but perhaps the document of one.
    """
    need_spec(spec)
    asked = spec.search.continuous_rollouts
    if spec.search.target is not None:
        spec = filled_in(spec, TARGETS[spec.search.target])
    rows = spec.workload.num_sequences * spec.workload.epochs
    if rows > MAX_SEQUENCES:
        raise SpecError(
            "workload",
            f"prompts_per_iteration × responses_per_prompt × epochs is {rows:.3g}",
            remedy=f"stay within {MAX_SEQUENCES:.0e}",
        )
    pools = _pools(spec if with_profiles else _without_profiles(spec))
    dataflow, models = _traced(spec, program)
    target = target_of(spec, dataflow, models)
    if target is UNKNOWN and (found := _inside_the_first(spec, program)) is not None:
        spec, dataflow, models, target = found
    job = Job(spec, in_turns(dataflow, target.turns), models, pools, target)
    _check_training_precision(job)
    _check_rollout_precision(job)
    _check_staleness(job)
    try:
        _check_continuous(job)
    except SpecError as error:
        if asked is None:  # then it is the target that generates so
            raise _of_staleness(job, error) from None
        raise
    _check_strategy(spec)
    check_constraints(job)
    return job


def _inside_the_first(
    spec: JobSpec, program: Program | None
) -> tuple[JobSpec, Dataflow, dict[str, Model], Target] | None:
    """The job inside the first framework that can run it; None: there is none.

    None is known to run on CPU cores.
    """
    for target in () if pools_of_cores(spec) else FRAMEWORKS:
        filled = filled_in(spec, target)
        dataflow, models = _traced(filled, program)
        if refusal(target, filled, dataflow, models) is None:
            return filled, dataflow, models, target
    return None


def _traced(spec: JobSpec, program: Program | None) -> tuple[Dataflow, dict[str, Model]]:
    dataflow = with_streaming(_dataflow(spec, program), wanted=spec.search.streaming)
    return dataflow, _models(spec, dataflow)


def with_table(job: Job, target: Target) -> Job:
    """A job of a built-in algorithm with another table of what runs it, whatever that refuses."""
    streaming = job.spec.search.streaming
    dataflow = with_streaming(_dataflow(job.spec, None), wanted=streaming)
    return replace(job, target=target, dataflow=in_turns(dataflow, target.turns))


def length_warnings(job: Job) -> list[str]:
    """Assumptions of a plan about lengths, in words, for `Plan.assumptions`.

    One line per length whose spread the spec leaves open, and one per model whose position limit is
    below the longest sequence.
    """
    workload = job.spec.workload
    lengths = {"prompt_length": workload.prompt_length, "response_length": workload.response_length}
    longest = sum(length.max_tokens for length in lengths.values())
    return [
        f"workload.{name}: the spread is not given; a log-normal with a standard deviation of "
        f"{ASSUMED_SPREAD} in ln(length), cut at {length.max_tokens} tokens, is assumed"
        for name, length in lengths.items()
        if length.assumes_spread
    ] + [
        f"models.{role}: sequences of up to {longest} tokens (prompt and response) exceed its "
        f"max_position_embeddings {model.architecture.max_position_embeddings}; the position "
        "encoding is assumed to be scaled"
        for role, model in job.models.items()
        if longest > model.architecture.max_position_embeddings
    ]


def _dataflow(spec: JobSpec, program: Program | None) -> Dataflow:
    build: Callable[..., Dataflow]
    if spec.dataflow is not None:
        who = "an explicit dataflow"
        build = partial(explicit_dataflow, spec.dataflow, models=spec.models)
    else:
        assert spec.algorithm is not None, "the spec's validator wants one of the two"
        program = program or PROGRAMS[spec.algorithm]
        _check_roles(spec, program)
        who = program.name
        build = partial(trace, program, models=spec.models)
    dataflow = build(workload=spec.workload)
    if spec.dataflow is not None:
        _check_every_model_is_called(spec, dataflow)
    _check_knobs_are_read(spec.workload, who, build, dataflow)
    return dataflow


def _check_roles(spec: JobSpec, program: Program) -> None:
    """Refuse a spec without a required role, or with one that the program would never call."""
    strangers = [role for role in spec.models if role not in program.all_roles]
    for role in program.roles:
        if role not in spec.models:
            raise SpecError(
                f"models.{role}",
                f"is missing; {program.name} needs {', '.join(program.roles)}",
                remedy=f"add it, or call {' or '.join(strangers)} so" if strangers else "add it",
            )
    for role in strangers:
        raise SpecError(
            f"models.{role}",
            f"{program.name} does not use this role",
            remedy=f"remove it; its roles are {', '.join(program.all_roles)}",
        )


def _check_every_model_is_called(spec: JobSpec, dataflow: Dataflow) -> None:
    called = {call.role for call in dataflow.calls}
    for role in spec.models:
        if role not in called:
            raise SpecError(
                f"models.{role}",
                "no call of the dataflow uses this role",
                remedy=f"remove it; the calls use {', '.join(sorted(called))}",
            )


def _check_knobs_are_read(
    workload: WorkloadSpec, who: str, build: Callable[..., Dataflow], dataflow: Dataflow
) -> None:
    """Refuse a setting without which the dataflow is the same: it would plan another job."""
    neutral: dict[str, tuple[bool | float, str]] = {
        "pretrain_loss": (False, "leave it out, or use ppo or safe_rlhf"),
        "expected_acceptance": (1.0, "leave it out, use dapo, or give calls expected_rounds"),
    }
    for name, (value, remedy) in neutral.items():
        given = getattr(workload, name)
        without = workload.model_copy(update={name: value})
        if given != value and build(workload=without) == dataflow:
            raise SpecError(
                f"workload.{name}", f"is {given}, but {who} does not read it", remedy=remedy
            )


def _check_training_precision(job: Job) -> None:
    """Refuse a training precision that some pool cannot compute in; any pool may train."""
    without = [pool for pool in job.pools if pool.gpu.fp8_flops_per_second is None]
    if job.spec.workload.training_precision == "fp8" and without:
        raise SpecError(
            "workload.training_precision",
            f"is fp8, but {without[0].gpu.name} of pool {without[0].name} does not compute in fp8",
            remedy=f"leave it out (then {job.spec.workload.precision}), or leave out the pool",
        )


def _check_rollout_precision(job: Job) -> None:
    """Refuse 4-bit weights that a pool has no kernels for, or that no part of a model would have.

    Any pool may generate.
    """
    precision = job.spec.workload.rollout_precision
    block_format = BLOCK_FORMATS.get(precision or "")
    if block_format is None:
        return
    without = [pool for pool in job.pools if not pool.gpu.unpacks_four_bits]
    if without:
        raise SpecError(
            "workload.rollout_precision",
            f"is {precision}, but {without[0].gpu.name} of pool {without[0].name} has no kernels "
            "for 4-bit weights, which are for tensor cores from Ampere on",
            remedy=f"leave it out (then {job.spec.workload.precision}), or leave out the pool",
        )
    for call in job.dataflow.calls:
        if call.kind != "generate" or call.model is None:
            continue
        if block_format.experts_only and not job.models[call.model].architecture.num_experts:
            raise SpecError(
                "workload.rollout_precision",
                f"is {precision}, a format of routed experts, but models.{call.model} has none",
                remedy="use nvfp4 or int4",
            )


def _check_staleness(job: Job) -> None:
    if job.spec.search.staleness and not job.dataflow.allows_staleness:
        raise SpecError(
            "search.staleness",
            f"{job.spec.algorithm} has no importance ratio that would correct for rollouts "
            f"{job.spec.search.staleness} iterations old",
            remedy="set it to 0, or use an algorithm with a ratio, for example grpo",
        )


def _of_staleness(job: Job, error: SpecError) -> SpecError:
    """What keeps rollouts from flowing, where nothing but the staleness asks for it."""
    staleness = job.spec.search.staleness
    why = error.message.removeprefix("is false, but search.continuous_rollouts needs ")
    return SpecError(
        "search.staleness",
        f"{staleness} lets {job.target.name} generate without batches, on GPUs of their own, but "
        f"{error.field}: {why}",
        remedy="set it to 0 or 1",
    )


def _check_continuous(job: Job) -> None:
    """Refuse continuous rollouts of a job without exactly one generation that can lie apart."""
    if not job.spec.search.continuous_rollouts:
        return
    field = "search.continuous_rollouts"
    calls = [call for call in job.dataflow.calls if call.kind == "generate"]
    if len(calls) != 1:
        raise SpecError(
            field,
            f"an iteration has {len(calls)} generate calls "
            f"({', '.join(call.id for call in calls) or 'none'}), and only one can flow on its own",
            remedy="leave it out",
        )
    role = calls[0].model
    if role is None or not job.models[role].trainable or weights_edge(job.dataflow, role) is None:
        raise SpecError(
            field,
            f"{calls[0].id} has no training of an earlier iteration that its weights come from",
            remedy="leave it out",
        )
    if any(edge.streamed for edge in job.dataflow.edges):
        raise SpecError(field, "an edge of the dataflow is streamed", remedy="leave out one of two")
    if not job.spec.constraints.allow_shadow_copies:
        raise SpecError(
            "constraints.allow_shadow_copies",
            f"is false, but search.continuous_rollouts needs a copy of {role} on its own GPUs",
            remedy="leave out one of the two",
        )
    if job.num_gpus < 2:
        raise SpecError(
            field, "the cluster has one GPU, and generation needs its own", remedy="leave it out"
        )


def _check_strategy(spec: JobSpec) -> None:
    target = spec.search.target_iteration_seconds
    if spec.search.strategy is not None and target is not None:
        raise SpecError(
            "search.strategy",
            f"{spec.search.strategy} places the job without regard to "
            f"search.target_iteration_seconds, {target:g} s",
            remedy="leave out one of the two",
        )


def _models(spec: JobSpec, dataflow: Dataflow) -> dict[str, Model]:
    """The models with weights, in the order of their first calls: key order never matters."""
    roles = dict.fromkeys(call.model for call in dataflow.calls if call.model is not None)
    return {
        role: _model(role, spec.models[role], [c for c in dataflow.calls if c.model == role])
        for role in roles
    }


def _model(role: str, given: ModelSpec, calls: list[Call]) -> Model:
    trainable = any(call.kind == "train" for call in calls)
    if given.lora is not None and not trainable:
        raise SpecError(
            f"models.{role}.lora",
            "LoRA adapters are for models that train, and this one does not",
            remedy="remove lora",
        )
    scalar_head = bool(SCALAR_ROLES & set(re.split(r"[_.-]", role)))
    if scalar_head and any(call.kind == "generate" for call in calls):
        raise SpecError(
            f"models.{role}",
            "a critic, reward or cost model has one output per token and cannot generate",
            remedy="give the generating role another name",
        )
    return Model(
        role=role,
        architecture=_architecture(given, field=f"models.{role}.architecture"),
        scalar_head=scalar_head,
        trainable=trainable,
        lora_rank=given.lora.rank if given.lora is not None else None,
    )


def _architecture(given: ModelSpec, *, field: str) -> ModelArchitecture:
    if isinstance(given.architecture, ModelArchitecture):
        return given.architecture
    assert given.architecture is not None, "the spec's validator wants it unless a function"
    if re.search(r"^[./~]|\\|\.json$", given.architecture):
        raise SpecError(
            field,
            f"{given.architecture!r} looks like a path; the planner reads no files",
            remedy="the command line reads config.json files; over HTTP give a catalogue name or "
            "inline sizes",
        )
    try:
        return catalogue.architecture(given.architecture, field=field)
    except SpecError as error:
        remedy = f"{error.remedy}; else give its sizes, or the command line its config.json"
        raise SpecError(field, error.message, remedy=remedy) from None


def _without_profiles(spec: JobSpec) -> JobSpec:
    if not isinstance(spec.cluster, ClusterSpec):
        return spec
    pools = [pool.model_copy(update={"profile": None}) for pool in spec.cluster.pools]
    return spec.model_copy(update={"cluster": ClusterSpec(pools=pools)})


def _pools(spec: JobSpec) -> tuple[Pool, ...]:
    """The cluster's pools one after another on the GPU axis."""
    if not isinstance(spec.cluster, ClusterSpec):
        raise SpecError(
            "cluster",
            f"{spec.cluster!r} is the name of a stored cluster, which only a service can look up",
            remedy="give the pools themselves",
        )
    kept_free = spec.constraints.keep_free_gpus
    names = [pool.name for pool in spec.cluster.pools]
    for name in kept_free:
        if name not in names:
            raise SpecError(
                f"constraints.keep_free_gpus.{name}",
                "the cluster has no pool of this name",
                remedy=f"use one of {', '.join(names)}",
            )
    pools: list[Pool] = []
    for index, given in enumerate(spec.cluster.pools):
        first_gpu = pools[-1].first_gpu + pools[-1].num_gpus if pools else 0
        field = f"cluster.pools.{index}"
        pools.append(
            resolve_pool(
                given, field=field, first_gpu=first_gpu, kept_free=kept_free.get(given.name, 0)
            )
        )
    return tuple(pools)


def resolve_pool(given: PoolSpec, *, field: str, first_gpu: int = 0, kept_free: int = 0) -> Pool:
    """A pool with what it leaves out taken from the catalogue's node type.

    Raises:
        SpecError: an unknown GPU, links in another unit, an NVLink domain that does not fit the
            nodes, or no GPU left.
    """
    _check_link_units(given, field=field)
    gpu = catalogue.gpu_type(given.gpu, field=f"{field}.gpu")
    node = catalogue.node_type(gpu.node, field=f"{field}.gpu")
    gpus_per_node = given.gpus_per_node or node.gpus_per_node
    # A domain inside the node shrinks with the node; one that spans nodes (NVL72) stays.
    inside_node = node.nvlink_domain_gpus <= node.gpus_per_node
    default_domain = (
        min(node.nvlink_domain_gpus, gpus_per_node) if inside_node else node.nvlink_domain_gpus
    )
    domain = given.nvlink_domain_gpus or default_domain
    if domain % gpus_per_node and gpus_per_node % domain:
        raise SpecError(
            f"{field}.nvlink_domain_gpus",
            f"a domain of {domain} GPUs neither divides a node of {gpus_per_node} nor is made of "
            "whole nodes",
            remedy=f"use a divisor or a multiple of {gpus_per_node}",
        )
    num_gpus = given.num_nodes * gpus_per_node
    if kept_free >= num_gpus:
        raise SpecError(
            f"constraints.keep_free_gpus.{given.name}",
            f"{kept_free} of the pool's {num_gpus} GPUs are kept free, so none is left",
            remedy=f"keep at most {num_gpus - 1} free, or leave the pool out",
        )
    return Pool(
        name=given.name,
        gpu=gpu,
        num_nodes=given.num_nodes,
        gpus_per_node=gpus_per_node,
        first_gpu=first_gpu,
        nvlink_domain_gpus=domain,
        intra_node_bytes_per_second=_first(
            given.intra_node_bytes_per_second, node.intra_node_bytes_per_second
        ),
        inter_node_bytes_per_second=_first(
            given.inter_node_bytes_per_second, node.inter_node_bytes_per_second
        ),
        host_memory_bytes=given.host_memory_bytes
        or node.host_memory_bytes * gpus_per_node // node.gpus_per_node,
        host_link_bytes_per_second=_first(
            given.host_link_bytes_per_second, node.host_link_bytes_per_second
        ),
        price_per_gpu_hour=_first(given.price_per_gpu_hour, node.price_per_gpu_hour),
        kept_free_gpus=kept_free,
        # A stated speed is that of any two GPUs.
        peer_bytes_per_second=node.peer_bytes_per_second
        if given.intra_node_bytes_per_second is None
        else None,
        profile=None
        if given.profile in (None, SHIPPED)
        else profile_folder(given.profile, gpu, field=f"{field}.profile"),
    )


def _first(given: float | None, default: float) -> float:
    """The spec's value, or the node type's; 0 is a value."""
    return default if given is None else given


def _check_link_units(given: PoolSpec, *, field: str) -> None:
    """Refuse speeds that only another unit explains: GB/s, MB/s or Gbit/s."""
    for name in (
        "intra_node_bytes_per_second",
        "inter_node_bytes_per_second",
        "host_link_bytes_per_second",
    ):
        value = getattr(given, name)
        if value is not None and value < SLOWEST_LINK_BYTES_PER_SECOND:
            raise SpecError(
                f"{field}.{name}",
                f"{value:g} bytes per second is too slow for any link between GPUs",
                remedy=f"give bytes per second, not GB/s: {value:g} GB/s are {value:g}e9",
            )
