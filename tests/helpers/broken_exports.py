"""Plans that break one limit each of what verl can be told: valid ones, changed by hand."""

from collections.abc import Mapping
from typing import Any

from automap.planner.exports.refusals import refusals
from automap.planner.exports.subject import subject_of
from automap.planner.frameworks.description import Framework
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import GenerationTail, Plan
from automap.planner.spec import DataflowSpec, LengthSpec
from automap.planner.units import GIB
from tests.helpers.framework_plans import Wanted, plan_of


def changed(plan: Plan, what: str, name: str, **values: Any) -> Plan:
    """The plan with other values of one of its copies or calls."""
    items = getattr(plan, what)
    assert any(each.id == name for each in items)
    items = [each.model_copy(update=values) if each.id == name else each for each in items]
    return plan.model_copy(update={what: items})


def relaid(plan: Plan, *names: str, **sizes: Any) -> Plan:
    """The plan with another layout of copies, on as many GPUs as it multiplies to."""
    for name in names:
        [copy] = [copy for copy in plan.copies if copy.id == name]
        layout = copy.layout.model_copy(update=sizes)
        plan = changed(plan, "copies", name, layout=layout, num_gpus=layout.num_gpus)
    return plan


def regenerated(plan: Plan, **sizes: Any) -> Plan:
    """The plan with another layout of the engine that generates."""
    [call] = [call for call in plan.calls if call.id == "actor.generate"]
    assert call.parallelism is not None
    layout = call.parallelism.model_copy(update=sizes)
    return changed(plan, "calls", call.id, parallelism=layout)


def respecified(plan: Plan, part: str, **values: Any) -> Plan:
    """The plan of a spec with other values in one of its parts."""
    spec = plan.spec
    update = {part: getattr(spec, part).model_copy(update=values)}
    return plan.model_copy(update={"spec": spec.model_copy(update=update)})


def limits_of(plan: Plan, framework: Framework) -> set[str]:
    """Names of the limits that a plan is refused for."""
    found = refusals(subject_of(resolve(plan.spec), plan, framework))
    by_words = {limit.what: limit.name for limit in framework.limits}
    return {by_words[reason.summary.partition("cannot be told ")[2]] for reason in found}


def assert_every_limit_refuses(
    framework: Framework, broken: Mapping[str, Plan], sound: Mapping[str, Plan] | None = None
) -> None:
    """Each limit refuses the plan that breaks it, and none refuses a sound one."""
    refused = {name: limits_of(plan, framework) for name, plan in (sound or {}).items()}
    assert {name: limits for name, limits in refused.items() if limits} == {}
    refused = {name: limits_of(plan, framework) for name, plan in broken.items()}
    assert {name: limits for name, limits in refused.items() if name not in limits} == {}
    assert set(broken) == {limit.name for limit in framework.limits}


def accepted_by_verl() -> dict[str, Plan]:
    """Limit → a plan that breaks it, whose launch verl's own checks let through."""
    grpo, fsdp = plan_of(Wanted()), plan_of(Wanted(engine="fsdp"))
    apart = plan_of(Wanted(apart=True))
    ppo = plan_of(Wanted(algorithm="ppo", engine="fsdp", micro_batch=3))
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    other = pool.model_copy(update={"name": "a100", "gpu": "a100-80gb-sxm"})
    two = respecified(apart, "cluster", pools=[pool, other])
    return {
        "one_layout": relaid(grpo, "reference", tensor_parallel_size=2, data_parallel_size=8),
        "fsdp_reference": changed(fsdp, "copies", "reference", offload="none"),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=5),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "one_gpu_type": changed(two, "copies", "actor.shadow", pool="a100"),
        "whole_nodes": relaid(grpo, "actor", "reference", data_parallel_size=3),
        "epochs_apart": respecified(apart, "workload", epochs=2),
        "ranks_divide": respecified(
            fsdp, "workload", prompts_per_iteration=260, updates_per_epoch=26
        ),
        "critic_tokens": changed(ppo, "calls", "critic.forward", micro_batch_size=5),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            grpo, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(grpo, "copies", "reference", host_bytes=300 * GIB),
    }


def others() -> dict[str, Plan]:
    """Limit → a plan that breaks it, for which verl has no key, or which its checks refuse."""
    grpo, fsdp = plan_of(Wanted()), plan_of(Wanted(engine="fsdp"))
    ppo, apart = plan_of(Wanted(algorithm="ppo")), plan_of(Wanted(apart=True))
    mixture = plan_of(Wanted(model="qwen3-30b-a3b", num_nodes=4, expert=4, generation_expert=4))
    served = plan_of(Wanted(reward_model=True))
    remax = plan_of(Wanted(algorithm="remax"))
    context = plan_of(Wanted(engine="fsdp", context=2))
    generate = [call for call in remax.calls if call.kind == "generate"]
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    smaller = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-1.5b"})
    models = {**grpo.spec.models, "reference": smaller}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    lora = plan_of(Wanted(engine="fsdp", lora=8))
    return {
        "algorithm": grpo.model_copy(update={"spec": grpo.spec.model_copy(update=own)}),
        "remax_apart": apart.model_copy(
            update={"spec": apart.spec.model_copy(update={"algorithm": "remax"})}
        ),
        "one_range": changed(ppo, "copies", "critic", first_gpu=8),
        "one_engine": changed(ppo, "copies", "critic", engine="fsdp"),
        "fsdp_sizes": relaid(fsdp, "actor", tensor_parallel_size=2, data_parallel_size=8),
        "fsdp_sharding": relaid(fsdp, "actor", sharding="optimizer"),
        "fsdp_recompute": changed(fsdp, "calls", "actor.train", recompute="selective"),
        "megatron_sharding": relaid(grpo, "actor", sharding="gradient"),
        "stages": changed(grpo, "copies", "actor", layers_per_stage=[7, 6, 8, 7]),
        "reference_model": grpo.model_copy(
            update={"spec": grpo.spec.model_copy(update={"models": models})}
        ),
        "adapter_reference": changed(lora, "calls", "reference.forward", micro_batch_size=1),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=2),
        "engine_experts": regenerated(mixture, expert_parallel_size=2),
        "generate_alike": changed(remax, "calls", generate[1].id, kv_cache_bytes=GIB),
        "overlap": changed(apart, "copies", "actor.shadow", first_gpu=4),
        "continuous": respecified(apart, "search", staleness=2),
        "staleness_together": respecified(grpo, "search", staleness=1),
        "barrier": respecified(grpo, "search", iteration_barrier=False),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "pretrain": respecified(ppo, "workload", pretrain_loss=True),
        "host_optimizer": respecified(fsdp, "workload", optimizer_cpu_offload=True),
        "precision": respecified(grpo, "workload", training_precision="fp8"),
        "cache_precision": respecified(
            grpo, "workload", rollout_engine="sglang", rollout_cache_precision="fp8"
        ),
        "engine_bytes": respecified(grpo, "workload", rollout_engine="trtllm"),
        "optimizer_steps": respecified(grpo, "workload", updates_per_epoch=3),
        "padded_context": respecified(context, "workload", packed_sequences=False),
        "reward_layout": relaid(served, "reward", sharding="full"),
        "reward_apart": relaid(served, "reward", data_parallel_size=2),
    }
