"""Plans, their launches, and what verl makes of these."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automap.planner import Launch, export_into
from automap.planner.exports.subject import Subject, subject_of
from automap.planner.exports.verl.settings import launch_of
from automap.planner.frameworks import framework
from automap.planner.imports import LaunchFile
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CopyPlan, Plan
from tests.exports.launched import model_folder, submitted
from tests.exports.own_code import own_code
from tests.helpers.framework_plans import told_of_optimizer

VERL = framework("verl@0.9.1")
MEGATRON = {
    "tensor_model_parallel_size": "tensor_parallel_size",
    "pipeline_model_parallel_size": "pipeline_parallel_size",
    "context_parallel_size": "context_parallel_size",
    "expert_model_parallel_size": "expert_parallel_size",
}
"""Field of verl's Megatron engine → size of a layout."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan, and what verl would run."""

    plan: Plan
    launch: Launch
    overrides: list[str]
    verdict: dict[str, Any]


def subject(plan: Plan) -> Subject:
    return subject_of(resolve(plan.spec), plan, VERL)


def verdicts(overrides: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """What verl makes of overrides, by their launch's name."""
    cases = {name: {"overrides": list(given)} for name, given in overrides.items()}
    return own_code("accept_verl.py").verdicts(cases)


def ask(
    plans: Mapping[str, Plan],
    folder: Path,
    into: Sequence[tuple[str, str]] = (),
    of: Callable[[Plan], Subject] = subject,
) -> dict[str, Asked]:
    """Run the scripts of plans, whatever we refuse of them, and pass what they submit to verl.

    `into` has plans that are also written into the launch of another one, as `A into B`.
    """
    launches = {name: launch_of(of(plan)) for name, plan in plans.items()}
    for name, other in into:
        before = LaunchFile("launch.sh", launches[other].script)
        script = export_into(plans[name], [before], VERL.target).text
        both = f"{name} into {other}"
        launches[both] = launches[other].model_copy(update={"script": script})
        plans = {**plans, both: plans[name]}
    overrides = {}
    for name, launch in launches.items():
        spec = plans[name].spec
        models = {
            each.variable: str(model_folder(spec, each.variable[: -len("_MODEL")].lower(), folder))
            for each in launch.placeholders
            if each.variable.endswith("_MODEL")
        }
        overrides[name] = submitted(launch, folder, **models)
    found = verdicts(overrides)
    return {
        name: Asked(plans[name], launch, overrides[name], found[name])
        for name, launch in launches.items()
    }


def differences(asked: Asked) -> list[str]:
    """Where what verl would run is not what the plan says."""
    plan, verdict = asked.plan, asked.verdict
    if "error" in verdict:
        return [verdict["error"]]
    found = [*_pool_differences(plan, verdict), *_rollout_differences(plan, verdict)]
    for copy in plan.copies:
        if copy.kind == "home" and copy.role != "reward":
            found += _engine_differences(plan, copy, verdict[copy.role])
    return found


def _pool_differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    homes = {copy.role: copy for copy in plan.copies if copy.kind == "home"}
    expected = {"global_pool": _gpus(plan, homes["actor"])}
    reward = homes.get("reward")
    if reward is not None and reward.first_gpu != homes["actor"].first_gpu:
        expected["reward_pool"] = _gpus(plan, reward)
    different = verdict["pools"] != expected
    return [f"pools {verdict['pools']}, not {expected}"] if different else []


def _gpus(plan: Plan, copy: CopyPlan) -> list[int]:
    [pool] = [pool for pool in resolve(plan.spec).pools if pool.name == copy.pool]
    if copy.num_gpus < pool.gpus_per_node:
        return [copy.num_gpus]
    return [pool.gpus_per_node] * (copy.num_gpus // pool.gpus_per_node)


def _rollout_differences(plan: Plan, verdict: Mapping[str, Any]) -> list[str]:
    call = next(call for call in plan.calls if call.kind == "generate")
    rollout, copies = verdict["rollout"], {copy.id: copy for copy in plan.copies}
    assert call.parallelism is not None
    copy = copies[call.copy_id or ""]
    workload = plan.spec.workload
    expected = {
        "tensor_model_parallel_size": call.parallelism.tensor_parallel_size,
        "expert_parallel_size": call.parallelism.expert_parallel_size,
        "n": workload.responses_per_prompt,
        "prompt_length": workload.prompt_length.max_tokens,
        "response_length": workload.response_length.max_tokens,
    }
    if workload.rollout_engine == "vllm":
        expected["vllm"] = rollout["vllm"] | {"kv_cache_memory_bytes": call.kv_cache_bytes}
    if copy.kind == "shadow":
        gpus = _gpus(plan, copy)
        expected |= {"nnodes": len(gpus), "n_gpus_per_node": gpus[0]}
    engines = call.parallelism.data_parallel_size // rollout["data_parallel_size"]
    found = [] if rollout["max_num_seqs"] * engines >= workload.num_sequences else ["max_num_seqs"]
    return found + _different("rollout", rollout, expected)


def _engine_differences(plan: Plan, copy: CopyPlan, engine: Mapping[str, Any]) -> list[str]:
    layout, workload = copy.layout, plan.spec.workload
    expected: dict[str, Any] = {"param_offload": copy.offload == "weights"}
    if engine["strategy"] == "megatron":
        expected |= {key: getattr(layout, size) for key, size in MEGATRON.items()}
        virtual = layout.virtual_pipeline_parallel_size
        expected["virtual_pipeline_model_parallel_size"] = virtual if virtual > 1 else None
    else:
        expected |= {
            "strategy": "fsdp2",
            "fsdp_size": -1,
            "ulysses_sequence_parallel_size": layout.context_parallel_size,
            "reshard_after_forward": layout.sharding == "full",
        }
    if copy.role != "reference":
        if engine["strategy"] == "megatron":
            expected |= told_of_optimizer(plan)
        expected["optimizer_offload"] = copy.offload != "none"
        expected["mini_batch"] = workload.prompts_per_iteration // workload.updates_per_epoch
        expected["epochs"] = workload.epochs
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    found = []
    for kind, prefix in (("train", ""), ("forward", "infer_")):
        call = next((c for c in plan.calls if (c.role, c.kind) == (copy.role, kind)), None)
        if call is None:
            continue
        if engine["use_dynamic_bsz"]:
            budget = engine[f"{prefix}max_token_len_per_gpu"] * layout.context_parallel_size
            if not longest <= budget <= longest * (call.micro_batch_size or 1) + 1:
                found.append(f"{call.id}: a budget of {budget} tokens")
        else:
            expected[f"{prefix}micro_batch_size_per_gpu"] = call.micro_batch_size
    return found + _different(copy.role, engine, expected)


def _different(name: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    return [
        f"{name}.{key}: {found.get(key)!r}, not {value!r}"
        for key, value in expected.items()
        if found.get(key) != value
    ]
