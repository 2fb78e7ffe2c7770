"""Plans for TRL, made of a placement each, with generation in its processes or by a server."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from automap.planner import Launch
from automap.planner.exports.subject import subject_of
from automap.planner.exports.trl.settings import launch_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from automap.planner.targets.tables import inside
from tests.helpers.framework_plans import Wanted, home, placed, spec_of

TRL = framework("trl@1.16.0")
EACH = 8
STAGES = {"optimizer": 1, "gradient": 2, "full": 3}


@dataclass(frozen=True, slots=True)
class Laid:
    """A job, and how it is placed."""

    wanted: Wanted
    trainer: int = EACH
    """GPUs that train, the first ones."""
    server: int = 0
    """GPUs of the server, behind them; 0: the same GPUs generate."""
    sharding: str = "full"
    tensor: int = 1
    """Of an engine."""
    micro_batch: int = 4
    recompute: str = "none"

    def but(self, **changes: Any) -> "Laid":
        return replace(self, **changes)


def job(wanted: Wanted) -> JobSpec:
    return inside(spec_of(wanted), TRL.target)  # type: ignore[arg-type]


def plan_of(laid: Laid) -> Plan:
    """The plan, priced and checked."""
    nodes = -(-(laid.trainer + laid.server) // EACH)
    spec = job(laid.wanted.but(num_nodes=nodes))
    return estimate(spec, placement_of(laid, spec))


def placement_of(laid: Laid, spec: JobSpec) -> Placement:
    gpus = laid.server or laid.trainer
    return placed(
        spec,
        [home(role, 0, laid.trainer, _layout(laid, role)) for role in resolve(spec).models],
        Parallelism(tensor_parallel_size=laid.tensor, data_parallel_size=gpus // laid.tensor),
        apart_from=laid.trainer if laid.server else None,
        train=laid.micro_batch,
        score=laid.micro_batch,
        recompute=laid.recompute,
    )


def _layout(laid: Laid, role: str) -> Parallelism:
    whole = laid.trainer == 1 or (role == "reference" and laid.sharding != "full")
    sharding = "none" if whole else laid.sharding
    return Parallelism.model_validate({"data_parallel_size": laid.trainer, "sharding": sharding})


SMALL = Wanted(model="qwen2.5-1.5b")
NO_DIVERGENCE = SMALL.but(workload=(("kl", "none"),))
SAMPLE = {
    "grpo": Laid(SMALL, tensor=2),
    "grpo without divergence": Laid(NO_DIVERGENCE, recompute="full"),
    "rloo": Laid(SMALL.but(algorithm="rloo"), sharding="optimizer"),
    "two nodes": Laid(SMALL, trainer=16, sharding="gradient", tensor=4),
    "one GPU": Laid(SMALL.but(workload=(("epochs", 2),)), trainer=1),
    "a part of a node": Laid(SMALL, trainer=4, tensor=4),
    "server on the node": Laid(SMALL, trainer=4, server=4, tensor=2),
    "server on a node": Laid(SMALL.but(algorithm="rloo"), trainer=16, server=8, tensor=4),
    "server, without divergence": Laid(NO_DIVERGENCE, trainer=8, server=8, micro_batch=8),
    "checkpoints": Laid(
        SMALL.but(
            workload=(("checkpoint_every_iterations", 10), ("checkpoint_seconds", 5.0)),
        ),
        sharding="optimizer",
    ),
}
"""Plans of every form that TRL can be told."""


def varied(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """The plans in every sharding, with several micro-batches, and with engines of any size.

    They are not priced anew, so hundreds take no time.
    """
    found = {}
    for (name, plan), sharding, micro, tensor in product(
        plans.items(), STAGES, (1, 2, 8), (1, 2, 4)
    ):
        laid, gpus = SAMPLE[name], SAMPLE[name].server or SAMPLE[name].trainer
        if gpus % tensor:
            continue
        laid = laid.but(sharding=sharding, micro_batch=micro, tensor=tensor)
        engine = Parallelism(tensor_parallel_size=tensor, data_parallel_size=gpus // tensor)
        copies = [
            c.model_copy(update={"layout": engine if c.kind == "shadow" else _layout(laid, c.role)})
            for c in plan.copies
        ]
        layouts = {copy.id: copy.layout for copy in copies}
        calls = []
        for call in plan.calls:
            of = engine if call.kind == "generate" else layouts.get(call.copy_id or "")
            update: dict[str, Any] = {"parallelism": of}
            update["micro_batch_size"] = micro if call.micro_batch_size else None
            calls.append(call.model_copy(update=update))
        found[f"{name} {sharding} {micro} {tensor}"] = plan.model_copy(
            update={"copies": copies, "calls": calls}
        )
    return found


def launch(plan: Plan) -> Launch:
    """The launch of a plan, whatever is refused of it."""
    return launch_of(subject_of(resolve(plan.spec), plan, TRL))


def given(launch: Launch) -> dict[str, str]:
    """Keys that are said → value."""
    return {each.key: each.value for each in launch.settings if each.value != "None"}


def case_of(plan: Plan, told: Launch) -> dict[str, Any]:
    """What TRL's and accelerate's own code are given of a launch."""
    filled = {"KL_COEFFICIENT": "0.01"}
    asked = [
        word
        for each in told.settings
        if each.placeholder
        for word in (each.key, filled.get(each.value, "x"))
    ]
    served = {
        each.key.removeprefix("vllm-serve."): each.value
        for each in told.settings
        if each.key.startswith("vllm-serve.")
    }
    return {
        "program": plan.spec.algorithm,
        "accelerate": told.files["accelerate.yaml"],
        "trainer": told.files["trainer.yaml"],
        "words": asked,
        "launch": ["--machine_rank", "0", "--main_process_ip", "node"],
        "serve": [word for key, value in served.items() for word in (f"--{key}", value)],
    }


def differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    """Where what TRL would run is not what the plan says."""
    if "error" in verdict:
        return [str(verdict["error"])]
    found = [*_launch_differences(plan, verdict["launch"]), *_trainer(plan, verdict["trainer"])]
    return [*found, *_engine_differences(plan, verdict)]


def _launch_differences(plan: Plan, told: Mapping[str, Any]) -> list[str]:
    actor = next(copy for copy in plan.copies if copy.id == "actor")
    sharding = "gradient" if actor.num_gpus == 1 else actor.layout.sharding
    alone = all(copy.role != "reference" for copy in plan.copies)
    fsdp = alone and actor.layout.sharding == "full"
    expected: dict[str, Any] = {
        "num_processes": actor.num_gpus,
        "num_machines": -(-actor.num_gpus // EACH),
        "mixed_precision": "bf16",
        "use_fsdp": fsdp,
        "use_deepspeed": not fsdp,
    }
    if fsdp:
        expected |= {"fsdp_version": 2, "fsdp_offload_params": False}
        expected["fsdp_auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP"
    elif actor.num_gpus > 1:
        expected["zero_stage"] = STAGES[sharding]
        expected["deepspeed_multinode_launcher"] = "standard"
    return _different("accelerate", told, expected)


def _trainer(plan: Plan, told: Mapping[str, Any]) -> list[str]:
    workload = plan.spec.workload
    train = next(call for call in plan.calls if call.kind == "train")
    actor = next(copy for copy in plan.copies if copy.id == "actor")
    mini = workload.num_sequences // workload.updates_per_epoch
    size = train.micro_batch_size or 1
    expected = {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": mini // size // actor.num_gpus,
        "generation_batch_size": workload.num_sequences,
        "steps_per_generation": workload.num_sequences // size // actor.num_gpus,
        "num_generations": workload.responses_per_prompt,
        "num_iterations": workload.epochs,
        "max_completion_length": workload.response_length.max_tokens,
        "gradient_checkpointing": train.recompute == "full",
        "beta": 0.01 if workload.kl != "none" else 0.0,
        "use_vllm": True,
        "max_steps": workload.iterations * workload.updates_per_epoch * workload.epochs,
    }
    return _different("trainer", told, expected)


def _engine_differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    workload = plan.spec.workload
    call = next(call for call in plan.calls if call.kind == "generate")
    assert call.parallelism is not None
    tensor, data = call.parallelism.tensor_parallel_size, call.parallelism.data_parallel_size
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    expected: dict[str, Any] = {"tensor_parallel_size": tensor, "max_model_len": longest}
    if any(copy.kind == "shadow" for copy in plan.copies):
        expected |= {"data_parallel_size": data, "kv_cache_memory_bytes": call.kv_cache_bytes}
        expected["max_num_seqs"] = -(-workload.num_sequences // data)
        return _different("server", verdict["server"], expected)
    expected |= {"enable_sleep_mode": True, "max_num_seqs": workload.num_sequences // data}
    return _different("engine", verdict["engine"], expected)


def _different(name: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}: {key} is {found.get(key)!r}, not {value!r}"
        for key, value in expected.items()
        if found.get(key) != value
    ]
