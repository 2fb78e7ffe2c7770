"""Plans for exports, made of a placement each: no search, so hundreds take seconds."""

from dataclasses import dataclass, replace
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
        CopyPlacement(
            id=role,
            role=role,
            kind="home",
            pool=POOL,
            first_gpu=first,
            num_gpus=num_gpus,
            layout=_layout(wanted, role, num_gpus),
            offload="weights" if role in ("reference", "reward") else wanted.offload,
        )
        for role, (first, num_gpus) in ranges.items()
    ]
    if wanted.apart:
        shadow = {"id": "actor.shadow", "role": "actor", "kind": "shadow", "pool": POOL}
        shadow |= {"first_gpu": trained, "num_gpus": total - trained}
        copies.append(CopyPlacement(**shadow, layout=generated))
    layouts = {copy.id: copy.layout for copy in copies}
    calls = []
    for call in resolve(spec).dataflow.calls:
        copy = "actor" if wanted.lora and call.role == "reference" else call.role
        copy = "actor.shadow" if wanted.apart and call.kind == "generate" else copy
        settings: dict[str, Any] = {"id": call.id, "role": call.role, "kind": call.kind}
        if call.kind == "generate":
            settings |= {"copy": copy, "parallelism": generated, "kv_cache_bytes": 16 * GIB}
        elif copy in layouts:
            settings |= {"copy": copy, "parallelism": layouts[copy]}
            settings["micro_batch_size"] = wanted.micro_batch
            settings["recompute"] = wanted.recompute if call.kind == "train" else None
        calls.append(CallPlacement(**settings))
    return Placement(copies=copies, calls=calls)


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
