"""GRPO of the largest open models on clusters that have trained them, against plain arithmetic."""

import pytest

from automap.planner import catalogue
from automap.planner.catalogue.weight_formats import weight_bytes
from automap.planner.check.check import violations
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import CallPlan, CopyPlan, Plan
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec

JOBS = {
    "deepseek-v3 on 64 nodes of 8 H800": ("deepseek-v3", "h800", 64),
    "deepseek-v3 on 96 nodes of 8 H20": ("deepseek-v3", "h20", 96),
    "deepseek-v3 on 32 nodes of 4 GB200": ("deepseek-v3", "gb200", 32),
    "qwen3-235b-a22b on 16 nodes of 8 H800": ("qwen3-235b-a22b", "h800", 16),
    "kimi-k2 on 128 nodes of 8 H800": ("kimi-k2", "h800", 128),
}
QUICK = "deepseek-v3 on 64 nodes of 8 H800"
PROMPT_TOKENS, RESPONSE_TOKENS, SEQUENCES = 500, 3000, 8192


def job(architecture: str, gpu: str, num_nodes: int) -> JobSpec:
    model = {"architecture": architecture}
    return JobSpec.model_validate(
        {
            "name": "large",
            "algorithm": "grpo",
            "models": {
                "actor": model,
                "reference": model,
                "reward": {"function": True, "seconds_per_response": 0.01},
            },
            "workload": {
                "prompts_per_iteration": 512,
                "responses_per_prompt": 16,
                "prompt_length": {"mean": PROMPT_TOKENS, "max": 2048},
                "response_length": {"mean": RESPONSE_TOKENS, "max": 8192},
                "updates_per_epoch": 4,
            },
            "cluster": {"pools": [{"name": "p", "gpu": gpu, "num_nodes": num_nodes}]},
            "search": {"limit_by": "work"},
        }
    )


def call_of(plan: Plan, kind: str) -> tuple[CallPlan, CopyPlan]:
    """The actor's call of a kind, and the copy that serves it."""
    call = next(c for c in plan.calls if c.role == "actor" and c.kind == kind)
    return call, next(copy for copy in plan.copies if copy.id == call.copy_id)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.slow) for n in JOBS]
)
def test_a_large_model_is_planned_without_a_switch_and_plausibly(name: str) -> None:
    architecture, gpu, num_nodes = JOBS[name]
    plan = make_plan(job(architecture, gpu, num_nodes))
    assert plan.relative_gap <= 0.02
    shape = catalogue.architecture(architecture, field="architecture")
    peak = catalogue.gpu_type(gpu, field="gpu").bf16_flops_per_second
    tokens = SEQUENCES * (PROMPT_TOKENS + RESPONSE_TOKENS)

    train, home = call_of(plan, "train")
    seconds = train.end_seconds - train.start_seconds
    needed = 6 * shape.active_parameters() * tokens / (home.num_gpus * peak)
    # 7 to 83 % of the peak: deep pipelines wait for the longest of the sequences in them.
    assert 1.2 * needed < seconds < 14 * needed

    generate, _ = call_of(plan, "generate")
    engine = generate.parallelism
    assert engine is not None
    replica_gpus = engine.tensor_parallel_size * engine.pipeline_parallel_size
    group = max(engine.expert_parallel_size, engine.tensor_parallel_size)
    experts = shape.num_moe_layers * shape.num_experts * shape.expert_parameters
    dense = shape.num_parameters() - experts
    weights = 2 * (experts / group / engine.pipeline_parallel_size + dense / replica_gpus)
    assert 0.95 * weights < generate.peak_bytes - generate.bytes_by_kind.kv_cache
    assert weights + generate.bytes_by_kind.kv_cache < generate.peak_bytes
    assert generate.peak_bytes <= generate.capacity_bytes
    steps = RESPONSE_TOKENS  # every sequence decodes its tokens one after another
    assert generate.end_seconds - generate.start_seconds > steps * 5e-3


def in_4_bits(precision: str, target: str | None = "any") -> JobSpec:
    spec = job("deepseek-v3", "gb200", 32)
    workload = spec.workload.model_copy(update={"rollout_precision": precision})
    search = spec.search.model_copy(update={"target": target})
    return spec.model_copy(update={"workload": workload, "search": search})


def test_deepseek_v3_rolls_out_in_nvfp4_on_gb200() -> None:
    spec = in_4_bits("nvfp4")
    plan = make_plan(spec)
    generate, _ = call_of(plan, "generate")
    engine = generate.parallelism
    assert engine is not None
    rest, experts = weight_bytes(catalogue.architecture("deepseek-v3"), "nvfp4")
    group = max(engine.expert_parallel_size, engine.tensor_parallel_size)
    weights = rest / engine.tensor_parallel_size + experts / group
    weights /= engine.pipeline_parallel_size
    assert 0.95 * weights < generate.bytes_by_kind.weights < 1.05 * weights + 4 * 2**30
    assert plan.runs_with == []

    job_of_plan = resolve(spec)
    assert violations(job_of_plan, plan) == []
    assert violations(resolve(in_4_bits("int4")), plan), "priced and weighed in another format"
    halved = {"weights": generate.bytes_by_kind.weights // 2}
    lighter = generate.model_copy(
        update={"bytes_by_kind": generate.bytes_by_kind.model_copy(update=halved)}
    )
    calls = [lighter if call.id == generate.id else call for call in plan.calls]
    assert violations(job_of_plan, plan.model_copy(update={"calls": calls}))
