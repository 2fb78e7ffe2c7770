"""A plan's shape, scaled down until tiny models run it in at most eight processes.

Every parallel size above 1 becomes 2; ranges stay equal, disjoint or nested as they were; the
engine of each copy, its sharding, offload and recomputation, and how the tensor size of generation
compares with that of training, are kept. `Twin.dropped` says what had to go.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from automap.planner.job.resolution import resolve
from automap.planner.plan.types import (
    CallPlacement,
    CopyPlacement,
    Parallelism,
    Placement,
    Plan,
)
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec

MOST_PROCESSES = 8
Dimension = Literal["tensor", "pipeline", "virtual", "context", "data", "expert"]
SPLITS: tuple[Dimension, ...] = ("pipeline", "data", "context", "tensor")
"""What takes devices, first what a twin keeps longest."""
Compared = Literal["smaller", "equal", "larger"]
DENSE: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}
"""tiny-llama with layers for two stages of two chunks."""
MIXTURE: dict[str, Any] = {
    **DENSE,
    "query_key_norm": True,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 128,
}


@dataclass(frozen=True, slots=True)
class GenerationShape:
    """How a copy generates."""

    tensor: Compared
    """Its tensor size beside that of the actor's training."""
    pipeline: bool
    experts: bool = False
    """Whether experts lie whole on its tensor ranks."""


@dataclass(frozen=True, slots=True)
class CopyShape:
    """What a copy asks of the executor, without its sizes."""

    id: str
    role: str
    kind: str
    engine: str | None
    above_one: frozenset[Dimension]
    """Parallel sizes above 1."""
    sharding: str
    offload: str
    recompute: str | None
    generation: GenerationShape | None
    segments: tuple[int, ...]
    """The parts of the job's devices that it lies on: no copy's range ends within a part."""


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Plans of one shape have one twin."""

    algorithm: str | None
    copies: tuple[CopyShape, ...]
    calls: tuple[tuple[str, str, str | None], ...]
    """(role, kind, copy) in the plan's order."""
    mixtures: frozenset[str]
    """Roles with experts."""
    adapters: frozenset[str]
    """Roles that train LoRA."""
    schedule: tuple[int, bool]
    """Staleness; whether iterations end together."""

    @property
    def num_segments(self) -> int:
        """Parts that the ranges divide the devices into."""
        return 1 + max(part for copy in self.copies for part in copy.segments)


def shape_of(plan: Plan) -> PlanShape:
    """What a plan asks of the executor, without its sizes."""
    models = resolve(plan.spec, with_profiles=False).models
    edges = sorted({edge for copy in plan.copies for edge in _edges(copy)})
    starts = [
        start
        for start, end in pairwise(edges)
        if any(_covers(copy, start, end) for copy in plan.copies)
    ]
    return PlanShape(
        algorithm=plan.algorithm,
        copies=tuple(_copy_shape(plan, copy, starts) for copy in plan.copies),
        calls=tuple((each.role, each.kind, each.copy_id) for each in plan.placement().calls),
        mixtures=frozenset(
            role for role, model in models.items() if model.architecture.num_experts
        ),
        adapters=frozenset(role for role, model in plan.spec.models.items() if model.lora),
        schedule=(plan.staleness, plan.iteration_barrier),
    )


def _edges(copy: CopyPlacement) -> tuple[tuple[str, int], tuple[str, int]]:
    return (copy.pool, copy.first_gpu), (copy.pool, copy.first_gpu + copy.num_gpus)


def _covers(copy: CopyPlacement, start: tuple[str, int], end: tuple[str, int]) -> bool:
    first, last = _edges(copy)
    return start[0] == end[0] and first <= start and end <= last


def _copy_shape(plan: Plan, copy: Any, starts: list[tuple[str, int]]) -> CopyShape:
    first, last = _edges(copy)
    calls = [call for call in plan.calls if call.copy_id == copy.id]
    recomputes = [call.recompute for call in calls if call.kind == "train"]
    return CopyShape(
        id=copy.id,
        role=copy.role,
        kind=copy.kind,
        engine=copy.engine,
        above_one=_above_one(copy.layout),
        sharding=copy.layout.sharding,
        offload=copy.offload,
        recompute=recomputes[0] if recomputes else None,
        generation=_generation_shape(plan, calls),
        segments=tuple(n for n, start in enumerate(starts) if first <= start < last),
    )


def _above_one(layout: Parallelism) -> frozenset[Dimension]:
    sizes: dict[Dimension, int] = {
        "tensor": layout.tensor_parallel_size,
        "pipeline": layout.pipeline_parallel_size,
        "virtual": layout.virtual_pipeline_parallel_size,
        "context": layout.context_parallel_size,
        "data": layout.data_parallel_size,
        "expert": layout.expert_parallel_size,
    }
    return frozenset(name for name, size in sizes.items() if size > 1)


def _generation_shape(plan: Plan, calls: Iterable[CallPlacement]) -> GenerationShape | None:
    for call in calls:
        if call.kind == "generate" and call.parallelism is not None:
            home = next(c for c in plan.copies if c.role == call.role and c.kind == "home")
            ours, theirs = (each.tensor_parallel_size for each in (call.parallelism, home.layout))
            compared: Compared = "equal"
            if ours != theirs:
                compared = "larger" if ours > theirs else "smaller"
            return GenerationShape(
                compared,
                pipeline=call.parallelism.pipeline_parallel_size > 1,
                experts=call.parallelism.expert_parallel_size > 1,
            )
    return None


@dataclass(frozen=True, slots=True)
class Twin:
    """The scaled-down plan, and what of the shape it lacks."""

    plan: Plan
    processes: int
    dropped: tuple[str, ...]


def twin_of(plan: Plan) -> Twin:
    """A plan of tiny models on CPU cores, of the given plan's shape."""
    shape = shape_of(plan)
    per_segment = _per_segment(shape)
    layouts, dropped = {}, []
    for copy in shape.copies:
        layout, lost = _layout(copy, per_segment * len(copy.segments))
        layouts[copy.id] = layout
        dropped += [f"{copy.id}: {name}" for name in lost]
    homes = {copy.role: layouts[copy.id] for copy in shape.copies if copy.kind == "home"}
    engines = {}
    for copy in shape.copies:
        if copy.generation is not None:
            own = layouts[copy.id]
            engines[copy.id] = _generation(copy, own, homes[copy.role])
            if copy.kind == "shadow":
                layouts[copy.id] = engines[copy.id]
                lacks = copy.above_one - _above_one(engines[copy.id])
                dropped += [f"{copy.id}: {name}" for name in sorted(lacks)]
            found = _compared(engines[copy.id], homes[copy.role])
            if found != copy.generation.tensor:
                dropped.append(f"{copy.id}: generation's tensor size is {found}")
    spec = _spec(plan, shape, num_gpus=per_segment * shape.num_segments)
    placement = Placement(
        copies=[_copy(copy, layouts[copy.id], per_segment) for copy in shape.copies],
        calls=_calls(plan, shape, layouts, engines),
    )
    twin = _on_cores(estimate(spec, placement))
    return Twin(twin, _processes(shape, per_segment), tuple(dropped))


def _on_cores(plan: Plan) -> Plan:
    """The plan of a pool of GPUs, to be run on CPU cores.

    It is priced on GPUs, because two weight syncs' buffers are more than what a core has.
    """
    document = plan.model_dump(mode="json", by_alias=True)
    for pool in document["spec"]["cluster"]["pools"]:
        pool["gpu"] = "cpu"
    return Plan.model_validate_json(json.dumps(document))


def _processes(shape: PlanShape, per_segment: int) -> int:
    """Each distinct range has processes of its own."""
    return per_segment * sum(len(each) for each in {copy.segments for copy in shape.copies})


def _per_segment(shape: PlanShape) -> int:
    """Devices of a segment: as few as hold all sizes at 2, and as the processes allow."""
    wanted = max(
        -(-(2 ** len(copy.above_one & set(SPLITS))) // len(copy.segments))
        for copy in shape.copies
        if copy.kind == "home"
    )
    per_segment = 1
    while per_segment < wanted and _processes(shape, 2 * per_segment) <= MOST_PROCESSES:
        per_segment *= 2
    return per_segment


def _layout(copy: CopyShape, num_gpus: int) -> tuple[Parallelism, list[str]]:
    """Sizes of 2 in every dimension that fits, the data ranks (else another dimension) the rest.

    What does not fit goes in this order: tensor, context, data, pipeline.
    """
    kept = [name for name in SPLITS if name in copy.above_one]
    while 2 ** len(kept) > num_gpus:
        kept.pop()
    sizes = dict.fromkeys(kept, 2)
    rest = next((name for name in ("data", "pipeline", "context", "tensor") if name in kept), None)
    if rest is not None:
        sizes[rest] *= num_gpus // 2 ** len(kept)
    interleaved = "virtual" in copy.above_one and "pipeline" in sizes
    experts = "expert" in copy.above_one and {"data", "tensor"} & set(sizes)
    layout = Parallelism(
        tensor_parallel_size=sizes.get("tensor", 1),
        pipeline_parallel_size=sizes.get("pipeline", 1),
        virtual_pipeline_parallel_size=2 if interleaved else 1,
        context_parallel_size=sizes.get("context", 1),
        data_parallel_size=sizes.get("data", num_gpus if rest is None else 1),
        expert_parallel_size=2 if experts else 1,
        sharding=copy.sharding if {"data", "context"} & set(sizes) else "none",
    )
    lost = [str(name) for name in sorted(copy.above_one - _above_one(layout))]
    if layout.sharding != copy.sharding:
        lost.append(f"sharding {copy.sharding}")
    return layout, [] if copy.kind == "shadow" else lost


def _generation(copy: CopyShape, own: Parallelism, home: Parallelism) -> Parallelism:
    """The ranks regrouped, with half, as large or twice the tensor size of the home."""
    assert copy.generation is not None
    wanted = {"smaller": 1, "equal": home.tensor_parallel_size}.get(
        copy.generation.tensor, 2 * home.tensor_parallel_size
    )
    tensor = min(wanted, own.num_gpus)
    pipeline = 2 if copy.generation.pipeline and own.num_gpus >= 2 * tensor else 1
    return Parallelism(
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=own.num_gpus // tensor // pipeline,
        expert_parallel_size=tensor if copy.generation.experts else 1,
    )


def _compared(ours: Parallelism, theirs: Parallelism) -> Compared:
    if ours.tensor_parallel_size == theirs.tensor_parallel_size:
        return "equal"
    return "larger" if ours.tensor_parallel_size > theirs.tensor_parallel_size else "smaller"


def _copy(copy: CopyShape, layout: Parallelism, per_segment: int) -> CopyPlacement:
    return CopyPlacement(
        id=copy.id,
        role=copy.role,
        kind=copy.kind,
        pool="cpu",
        first_gpu=per_segment * copy.segments[0],
        num_gpus=layout.num_gpus,
        layout=layout,
        offload=copy.offload,
    )


def _calls(
    plan: Plan,
    shape: PlanShape,
    layouts: Mapping[str, Parallelism],
    engines: Mapping[str, Parallelism],
) -> list[CallPlacement]:
    recompute = {copy.id: copy.recompute for copy in shape.copies}
    found = []
    for call in plan.placement().calls:
        changes: dict[str, Any] = {"id": _call_id(plan, call.id, call.role, call.kind)}
        if call.copy_id is not None:
            generates = call.kind == "generate"
            changes |= {
                "parallelism": (engines if generates else layouts)[call.copy_id],
                "micro_batch_size": None if generates else 1,
                "kv_cache_bytes": 2**20 if generates else None,
                "recompute": recompute[call.copy_id] if call.kind == "train" else None,
            }
        found.append(call.model_copy(update=changes))
    return found


def _call_id(plan: Plan, call_id: str, role: str, kind: str) -> str:
    """Calls of an explicit dataflow are renamed as programs call them."""
    return call_id if plan.algorithm is not None else f"{role}.{kind}"


def _spec(plan: Plan, shape: PlanShape, *, num_gpus: int) -> JobSpec:
    document = json.loads(plan.spec.model_dump_json(by_alias=True, exclude_unset=True))
    workload = document["workload"]
    responses = min(plan.spec.workload.responses_per_prompt, 2)
    document["workload"] = {
        **{name: workload[name] for name in KEPT if name in workload},
        "prompts_per_iteration": 16 // responses,
        "responses_per_prompt": responses,
        "updates_per_epoch": min(plan.spec.workload.updates_per_epoch, 2),
        "epochs": min(plan.spec.workload.epochs, 2),
        "prompt_length": {"mean": 3, "max": 4},
        "response_length": {"mean": 8, "max": 8},
        "precision": "fp32",
        "iterations": 2,
    }
    document["models"] = {
        role: _model(shape, role) if model.needs_gpus else {"function": True}
        for role, model in plan.spec.models.items()
    }
    document["cluster"] = {
        "pools": [{"name": "cpu", "gpu": "a100", "num_nodes": 1, "gpus_per_node": num_gpus}]
    }
    staleness, barrier = shape.schedule
    document["search"] = {"staleness": staleness, "iteration_barrier": barrier}
    document.pop("constraints", None)
    if plan.algorithm is None:
        names = {each.id: _call_id(plan, each.id, each.role, each.kind) for each in plan.calls}
        for call in document["dataflow"]["calls"]:
            call["id"] = names[call["id"]]
        for edge in document["dataflow"]["edges"]:
            edge |= {end: names[edge[end]] for end in ("source", "target")}
    return JobSpec.model_validate(document)


KEPT = ("kl", "old_log_probs", "pretrain_loss", "expected_acceptance")
"""Of a workload."""


def _model(shape: PlanShape, role: str) -> dict[str, Any]:
    found: dict[str, Any] = {"architecture": MIXTURE if role in shape.mixtures else DENSE}
    return {**found, "lora": {"rank": 4}} if role in shape.adapters else found
