"""Plans for a machine without GPUs, from placements written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from automap.planner.dataflow.algorithms.program import Program
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec


@dataclass(frozen=True)
class Place:
    """Where a role's home, or its shadow, lies."""

    first: int
    count: int
    tensor: int = 1
    generation_tensor: int = 1
    generation_pipeline: int = 1
    context: int = 1
    sharding: Literal["none", "optimizer", "full"] = "none"


def small_spec(
    algorithm: str,
    roles: Mapping[str, Place | None],
    *,
    lora_rank: int | None = None,
    **workload: Any,
) -> JobSpec:
    """Roles without a place are functions; `lora_rank` is the actor's."""
    models: dict[str, Any] = {
        role: {"function": True} if place is None else {"architecture": "tiny-llama"}
        for role, place in roles.items()
    }
    if lora_rank is not None:
        models["actor"]["lora"] = {"rank": lora_rank}
    return JobSpec.model_validate(
        {
            "name": "small",
            "algorithm": algorithm,
            "models": models,
            "workload": {
                "prompts_per_iteration": 5,
                "responses_per_prompt": 3,
                "prompt_length": {"mean": 8, "max": 8},
                "response_length": {"mean": 6, "max": 6},
                "updates_per_epoch": 2,
                "epochs": 2,
                "precision": "fp32",
                "iterations": 2,
                **workload,
            },
            "cluster": {
                "pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 8}]
            },
        }
    )


def small_plan(
    algorithm: str,
    roles: Mapping[str, Place | None],
    *,
    shadow: Place | None = None,
    order: Sequence[str] = (),
    program: Program | None = None,
    staleness: int = 0,
    barrier: bool = True,
    continuous: bool = False,
    keep_cache: bool = False,
    stream_chunks: int = 0,
    **workload: Any,
) -> Plan:
    """Every role where it is said; `shadow` generates in the actor's stead.

    `order` moves these calls to the front, as far as they may; with `stream_chunks` scoring begins
    while responses are generated.
    """
    spec = small_spec(algorithm, roles, **workload)
    overlap = {"staleness": staleness, "iteration_barrier": barrier}
    if continuous and staleness:
        overlap |= {"continuous_rollouts": True, "keep_cache_at_sync": keep_cache}
    if stream_chunks:
        overlap |= {"streaming": True, "stream_chunks": stream_chunks}
    spec = spec.model_copy(update={"search": spec.search.model_copy(update=overlap)})
    copies = {role: _copy(role, place) for role, place in roles.items() if place is not None}
    if shadow is not None:
        copies["actor.shadow"] = _copy("actor", shadow, shadow=True)
    calls = [
        _call(call.id, call.role, call.kind, copies, roles, shadow)
        for call in resolve(spec, program=program).dataflow.calls
    ]
    calls.sort(key=lambda call: order.index(call.id) if call.id in order else len(order))
    plan = estimate(spec, Placement(copies=list(copies.values()), calls=calls))
    if not continuous or staleness:
        return plan
    # No spec may ask for it: what a run says of such a plan is tested.
    search = spec.search.model_copy(update={"continuous_rollouts": True})
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"search": search})})


def _copy(role: str, place: Place, *, shadow: bool = False) -> CopyPlacement:
    return CopyPlacement(
        id=f"{role}.shadow" if shadow else role,
        role=role,
        kind="shadow" if shadow else "home",
        pool="cpu",
        first_gpu=place.first,
        num_gpus=place.count,
        layout=_layout(place),
    )


def _layout(place: Place) -> Parallelism:
    return Parallelism(
        tensor_parallel_size=place.tensor,
        context_parallel_size=place.context,
        data_parallel_size=place.count // place.tensor // place.context,
        sharding=place.sharding,
    )


def _generation(place: Place) -> Parallelism:
    tensor, pipeline = place.generation_tensor, place.generation_pipeline
    return Parallelism(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=place.count // tensor // pipeline,
    )


def _call(
    call_id: str,
    role: str,
    kind: str,
    copies: Mapping[str, CopyPlacement],
    roles: Mapping[str, Place | None],
    shadow: Place | None,
) -> CallPlacement:
    place = roles[role]
    if place is None:
        return CallPlacement(id=call_id, role=role, kind=kind, copy_id=None)  # type: ignore[arg-type]
    on_shadow = kind == "generate" and shadow is not None
    copy = copies["actor.shadow" if on_shadow else role]
    generates = kind == "generate"
    at = shadow if on_shadow and shadow is not None else place
    return CallPlacement(
        id=call_id,
        role=role,
        kind=kind,  # type: ignore[arg-type]
        copy_id=copy.id,
        parallelism=_generation(at) if generates else copy.layout,
        micro_batch_size=None if generates else 2,
        recompute="none" if kind == "train" else None,
        kv_cache_bytes=2**20 if generates else None,
    )
