"""Plans for exports, made of a placement each: no search, so hundreds take seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.units import GIB

POOL = "h100"
EACH = 8
"""GPUs of a node."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job and how it is placed; sizes are those of actor, reference and critic."""

    algorithm: str = "grpo"
    model: str = "qwen2.5-7b"
    num_nodes: int = 2
    engine: str = "megatron"
    apart: bool = False
    """Generation on the second half of the nodes."""
    reward_model: bool = False
    reward_nodes: int = 0
    """Nodes of the reward model alone, the last ones; 0: it is on the actor's."""
    tensor: int = 4
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    expert: int = 1
    sharding: str = ""
    offload: str = "weights"
    recompute: str = "none"
    micro_batch: int = 2
    generation_tensor: int = 4
    generation_expert: int = 1
    staleness: int = 0
    continuous: bool = False
    lora: int = 0
    """Rank of the actor's adapter, without which it is the reference; 0: none."""
    workload: tuple[tuple[str, Any], ...] = ()

    def but(self, **changes: Any) -> "Wanted":
        return replace(self, **changes)


SAMPLE = {
    "grpo": Wanted(model="qwen2.5-1.5b", pipeline=2, virtual=2, tensor=2, offload="none"),
    "ppo": Wanted(algorithm="ppo", recompute="selective", micro_batch=4),
    "ppo, fsdp": Wanted(algorithm="ppo", engine="fsdp", micro_batch=3, context=2),
    "grpo, fsdp, apart": Wanted(
        engine="fsdp", apart=True, staleness=2, continuous=True, sharding="gradient"
    ),
    "rloo, apart": Wanted(algorithm="rloo", apart=True, offload="optimizer", recompute="full"),
    "remax": Wanted(algorithm="remax"),
    "dapo, a reward model": Wanted(algorithm="dapo", reward_model=True),
    "its own GPUs": Wanted(apart=True, reward_model=True, reward_nodes=1, num_nodes=3),
    "uneven stages": Wanted(model="qwen2.5-7b", num_nodes=3, tensor=4, pipeline=3),
    "mixture": Wanted(model="qwen3-30b-a3b", num_nodes=4, expert=2, generation_expert=4),
    "adapters": Wanted(lora=8, workload=(("rollout_engine", "sglang"),)),
    "sglang": Wanted(workload=(("rollout_engine", "sglang"),)),
    "optimizer on the host": Wanted(algorithm="ppo", workload=(("optimizer_cpu_offload", True),)),
    "rollout in fp8": Wanted(workload=(("rollout_precision", "fp8"),)),
}
"""Plans of every form that verl can be told."""


def plan_of(wanted: Wanted) -> Plan:
    """The plan, priced and checked."""
    spec = spec_of(wanted)
    return estimate(spec, placement_of(wanted, spec))


def told_of_optimizer(plan: Plan) -> dict[str, Any]:
    """What Megatron-core is to be told of an optimizer on the host, or of one on the GPUs."""
    on_host = plan.spec.workload.optimizer_cpu_offload
    return {
        "optimizer_cpu_offload": on_host,
        "optimizer_offload_fraction": float(on_host),
        "overlap_cpu_optimizer_d2h_h2d": on_host,
        "use_precision_aware_optimizer": on_host,
    }


def spec_of(wanted: Wanted) -> JobSpec:
    model = {"architecture": wanted.model}
    trained = model | ({"lora": {"rank": wanted.lora}} if wanted.lora else {})
    models: dict[str, Any] = {"actor": trained}
    if not wanted.lora:
        models["reference"] = model
    if wanted.algorithm == "ppo":
        models["critic"] = trained
    models["reward"] = model if wanted.reward_model else {"function": True}
    workload = {
        "prompts_per_iteration": 256,
        "responses_per_prompt": 4 if wanted.algorithm not in ("ppo", "remax") else 1,
        "prompt_length": {"mean": 256, "max": 512},
        "response_length": {"mean": 512, "max": 1024},
        "updates_per_epoch": 2 if wanted.algorithm != "remax" else 1,
        "iterations": 100,
        **dict(wanted.workload),
    }
    pool = {"name": POOL, "gpu": "h100-80gb-sxm", "num_nodes": wanted.num_nodes}
    search = {"staleness": wanted.staleness, "max_out_of_memory_probability": 1.0}
    if wanted.continuous:
        search["continuous_rollouts"] = True
    document = {
        "name": f"{wanted.algorithm} {wanted.model}",
        "algorithm": wanted.algorithm,
        "models": models,
        "workload": workload,
        "cluster": {"pools": [pool]},
        "search": search,
    }
    return JobSpec.model_validate(document)


def placement_of(wanted: Wanted, spec: JobSpec) -> Placement:
    served = wanted.reward_nodes * EACH
    total = wanted.num_nodes * EACH - served
    trained = total // 2 if wanted.apart else total
    generated = _generation(wanted, total - trained if wanted.apart else total)
    ranges = {
        role: (total, served) if role == "reward" and served else (0, trained)
        for role, model in spec.models.items()
        if model.needs_gpus
    }
    copies = [
        home(
            role,
            first,
            num_gpus,
            _layout(wanted, role, num_gpus),
            offload="weights" if role in ("reference", "reward") else wanted.offload,
        )
        for role, (first, num_gpus) in ranges.items()
    ]
    return placed(
        spec,
        copies,
        generated,
        apart_from=trained if wanted.apart else None,
        train=wanted.micro_batch,
        score=wanted.micro_batch,
        recompute=wanted.recompute,
    )


def home(
    role: str, first_gpu: int, num_gpus: int, layout: Parallelism, *, offload: str = "none"
) -> CopyPlacement:
    """The copy on which a role trains or scores."""
    where: dict[str, Any] = {"first_gpu": first_gpu, "num_gpus": num_gpus, "offload": offload}
    return CopyPlacement(id=role, role=role, kind="home", pool=POOL, layout=layout, **where)


def placed(
    spec: JobSpec,
    homes: Sequence[CopyPlacement],
    generated: Parallelism,
    *,
    apart_from: int | None,
    train: int,
    score: int,
    recompute: str,
) -> Placement:
    """Every call on the home of its role, an adapter's reference on the actor.

    Args:
        spec: Of the job.
        homes: One for each model.
        generated: The layout that generates.
        apart_from: The first GPU of what generates on GPUs of its own; None: the actor's.
        train: Sequences of a micro-batch that is trained on.
        score: Those of one that is scored.
        recompute: Of what trains.
    """
    copies, where = list(homes), "actor"
    if apart_from is not None:
        where = "actor.shadow"
        shadow: dict[str, Any] = {"id": where, "role": "actor", "kind": "shadow", "pool": POOL}
        shadow |= {"first_gpu": apart_from, "num_gpus": generated.num_gpus}
        copies.append(CopyPlacement(**shadow, layout=generated))
    layouts = {copy.id: copy.layout for copy in copies}
    calls = []
    for call in resolve(spec).dataflow.calls:
        settings: dict[str, Any] = {"id": call.id, "role": call.role, "kind": call.kind}
        copy = "actor" if call.role == "reference" and "reference" not in layouts else call.role
        if call.kind == "generate":
            settings |= {"copy": where, "parallelism": generated, "kv_cache_bytes": 16 * GIB}
        elif copy in layouts:
            trains = call.kind == "train"
            settings |= {"copy": copy, "parallelism": layouts[copy]}
            settings["micro_batch_size"] = train if trains else score
            settings["recompute"] = recompute if trains else None
        calls.append(CallPlacement(**settings))
    return Placement(copies=copies, calls=calls)


def misplaced(plan: Plan, members: Mapping[str, Any]) -> list[str]:
    """Where the groups of models that a framework would make are not those of the plan."""
    copies = {c.role if c.kind == "home" else "rollout": c for c in plan.copies}
    copies.setdefault("rollout", copies["actor"])
    if set(members) != set(copies):
        return [f"models {sorted(members)}, not {sorted(copies)}"]
    ranges = {role: (copy.first_gpu, copy.num_gpus) for role, copy in copies.items()}
    found = [
        f"{role} has {members[role]['num_gpus']} GPUs, not {num_gpus}"
        for role, (_, num_gpus) in ranges.items()
        if members[role]["num_gpus"] != num_gpus
    ]
    return found + [
        f"{one} and {other}"
        for one, other in product(ranges, ranges)
        if (ranges[one] == ranges[other]) != (members[one]["group"] == members[other]["group"])
    ]


def _layout(wanted: Wanted, role: str, num_gpus: int) -> Parallelism:
    if role == "reward":
        tensor = wanted.tensor if wanted.engine == "megatron" else 1
        return Parallelism(tensor_parallel_size=tensor, data_parallel_size=num_gpus // tensor)
    scores = role == "reference"
    if wanted.engine == "fsdp":
        return Parallelism(
            context_parallel_size=wanted.context,
            data_parallel_size=num_gpus // wanted.context,
            sharding="full" if scores else wanted.sharding or "full",
        )
    split = wanted.tensor * wanted.pipeline * wanted.context
    return Parallelism(
        tensor_parallel_size=wanted.tensor,
        pipeline_parallel_size=wanted.pipeline,
        virtual_pipeline_parallel_size=wanted.virtual,
        context_parallel_size=wanted.context,
        expert_parallel_size=wanted.expert,
        data_parallel_size=num_gpus // split,
        sharding="none" if scores else wanted.sharding or "optimizer",
    )


def _generation(wanted: Wanted, num_gpus: int) -> Parallelism:
    return Parallelism(
        tensor_parallel_size=wanted.generation_tensor,
        expert_parallel_size=wanted.generation_expert,
        data_parallel_size=num_gpus // wanted.generation_tensor,
    )
