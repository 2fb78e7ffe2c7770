"""The tables of capabilities: what each limit refuses, and how search, check and plan read it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automap.planner import catalogue
from automap.planner.assembly.assumptions import warnings
from automap.planner.check.check import violations
from automap.planner.errors import SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.job.targets import UNKNOWN, refusal
from automap.planner.layout import SHARDINGS, GenerationLayouts, Layouts, RangeRelation
from automap.planner.plan.runs_with import can_be_told, refusals
from automap.planner.planning import make_plan
from automap.planner.search.candidates import enumeration
from automap.planner.spec import JobSpec
from automap.planner.targets.automap import AUTOMAP
from automap.planner.targets.tables import ANY, TARGETS
from automap.planner.targets.verl import VERL
from tests.helpers.small_jobs import pool, small_job
from tests.helpers.specs import job_spec

ONE = {
    "tensor": 1,
    "pipeline": 1,
    "virtual_pipeline": 1,
    "context": 1,
    "data": 1,
    "expert": 1,
}


def layout(*, sharding: str = "none", **sizes: int) -> Layouts:
    """One layout; sizes left out are 1."""
    each = {**ONE, **sizes}
    gpus = each["tensor"] * each["pipeline"] * each["context"] * each["data"]
    columns = {f"{name}_parallel_size": np.array([size]) for name, size in each.items()}
    return Layouts(
        num_gpus=np.array([gpus]),
        sharding=np.array([SHARDINGS.index(sharding)]),
        offload=np.array([0]),
        **columns,
    )


def job_of(architecture: str | dict[str, Any] = "llama-2-7b", **changes: Any) -> Job:
    models = {role: {"architecture": architecture} for role in ("actor", "reference", "reward")}
    return resolve(job_spec("grpo", models=models, **changes))


def engine(role: str, architecture: str = "llama-2-7b", **sizes: Any) -> str | None:
    """The engine of automap that runs a layout of a role's model; None: none does."""
    engines = job_of(architecture, search__target="automap").engines_of(role)
    number = int(engines.of_layouts(layout(**sizes))[0])
    return engines.engines[number].name if number >= 0 else None


@pytest.mark.parametrize(
    ("role", "sizes", "expected"),
    [
        ("actor", {}, "megatron"),
        ("actor", {"data": 8, "sharding": "optimizer"}, "megatron"),
        ("actor", {"data": 8}, "megatron"),
        ("actor", {"data": 8, "sharding": "gradient"}, "fsdp"),
        ("actor", {"data": 8, "tensor": 2, "sharding": "full"}, "fsdp"),
        ("actor", {"data": 2, "pipeline": 2, "sharding": "full"}, None),
        ("actor", {"data": 4, "context": 2, "sharding": "optimizer"}, None),
        ("actor", {"data": 4, "context": 2, "sharding": "full"}, "fsdp"),
        ("actor", {"tensor": 2, "context": 4, "sharding": "gradient"}, "fsdp"),
        ("actor", {"context": 2}, None),
        ("actor", {"context": 3, "sharding": "full"}, None),
        ("actor", {"tensor": 4, "pipeline": 8, "virtual_pipeline": 4}, "megatron"),
        ("actor", {"pipeline": 8, "virtual_pipeline": 3}, None),
        ("actor", {"pipeline": 31}, None),
        ("reference", {"data": 8}, "megatron"),
        ("reference", {"data": 8, "sharding": "full"}, "fsdp"),
        ("reference", {"data": 8, "sharding": "gradient"}, None),
        ("reference", {"context": 8, "sharding": "full"}, "fsdp"),
    ],
)
def test_a_layout_has_the_engine_that_can_keep_it(
    role: str, sizes: dict[str, Any], expected: str | None
) -> None:
    assert engine(role, **sizes) == expected


def test_a_mixture_of_experts_is_megatrons_alone() -> None:
    assert engine("actor", "qwen3-30b-a3b", data=8, expert=8, sharding="optimizer") == "megatron"
    assert engine("actor", "qwen3-30b-a3b", data=8, sharding="full") is None


def rollouts(target: str, num_gpus: int) -> set[tuple[int, int, int]]:
    """(tensor, expert, data) of every rollout of a mixture that a target allows."""
    job = job_of("qwen3-30b-a3b", search__target=target)
    call = next(each for each in job.dataflow.calls if each.kind == "generate")
    found = enumeration.engines(job, call, job.pools[0], num_gpus)
    columns = found.tensor_parallel_size, found.expert_parallel_size, found.data_parallel_size
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_experts_of_a_rollout_lie_on_its_tensor_ranks_or_each_is_split_over_them() -> None:
    automap, everything = rollouts("automap", 8), rollouts("any", 8)
    assert {each for each in everything if each[1] in (1, each[0])} == automap
    assert {(2, 1, 4), (2, 2, 4), (8, 8, 1)} <= automap
    assert {(2, 4, 4), (1, 8, 8), (4, 2, 2)} <= everything - automap


@pytest.mark.parametrize(("tensor", "expert", "data"), [(2, 8, 4), (4, 2, 2), (1, 4, 8)])
def test_other_expert_groups_of_a_rollout_are_refused_in_words(
    tensor: int, expert: int, data: int
) -> None:
    shape = catalogue.architecture("qwen3-30b-a3b", field="architecture")
    row = GenerationLayouts.of(layout(tensor=tensor, expert=expert, data=data))
    broken = [rule for rule, holds in AUTOMAP.rollout.rules(shape, row) if not holds.all()]
    assert broken == ["expert_parallel_size is 1 or tensor_parallel_size"]
    assert all(holds.all() for _, holds in ANY.rollout.rules(shape, row))


def test_adapters_are_fsdps_alone() -> None:
    models = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reward")}
    models["actor"]["lora"] = {"rank": 16}  # type: ignore[assignment]
    job = resolve(job_spec("grpo", models=models, workload__kl="none"))
    names = [each.name for each in job.engines_of("actor").engines]
    assert names == ["fsdp"]


@pytest.mark.parametrize(
    ("tensor", "context", "architecture", "rule"),
    [
        (1, 8, "llama-3.1-70b", None),
        (8, 2, "llama-3.1-70b", None),  # 64 heads; 8 key-value heads, each twice
        (4, 32, "llama-3.1-70b", "size × context_parallel_size divides num_attention_heads (64)"),
        (1, 4, "qwen2.5-7b", None),
        (1, 7, "qwen2.5-7b", "× context_parallel_size divides or repeats num_key_value_heads (4)"),
        (4, 2, "qwen2.5-7b", "size × context_parallel_size divides num_attention_heads (28)"),
    ],
)
def test_heads_split_over_tensor_and_context(
    tensor: int, context: int, architecture: str, rule: str | None
) -> None:
    engines = job_of(architecture, search__target="automap").engines_of("actor")
    lacks = engines.refusals(layout(tensor=tensor, context=context, sharding="full"))
    if rule is None:
        assert lacks == []
    else:
        (line,) = [each for each in lacks if each.startswith("fsdp")]
        assert rule in line


@given(
    tensor=st.sampled_from([1, 2, 3, 4, 8, 16]),
    pipeline=st.integers(1, 64),
    virtual=st.sampled_from([1, 2, 4]),
    context=st.sampled_from([1, 2]),
    data=st.integers(1, 64),
    sharding=st.sampled_from(SHARDINGS),
    role=st.sampled_from(["actor", "reference"]),
)
@settings(max_examples=300, deadline=None)
def test_a_layout_is_refused_with_a_reason_or_has_an_engine(
    role: str, sharding: str, tensor: int, pipeline: int, virtual: int, context: int, data: int
) -> None:
    engines = job_of(search__target="automap").engines_of(role)
    one = layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=virtual,
        context=context,
        data=data,
        sharding=sharding,
    )
    allowed = bool(engines.of_layouts(one)[0] >= 0)
    lacks = engines.refusals(one)
    assert allowed == (lacks == [])
    assert all(not line.endswith("needs: ") for line in lacks)


def test_every_candidate_has_an_engine_and_some_are_missing_that_any_has() -> None:
    three = {"cluster__pools": [pool(3)]}
    automap, everything = (
        enumeration.home_layouts(job, "actor", job.pools[0])
        for job in (job_of(search__target=name, **three) for name in ("automap", "any"))
    )
    engines = job_of(search__target="automap").engines_of("actor")
    assert (engines.of_layouts(automap) >= 0).all()
    kept = int((engines.of_layouts(everything) >= 0).sum())
    assert len(automap) == kept < len(everything)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"search__generation_tail": True}, "search.generation_tail"),
        ({"workload__rollout_engine": "trtllm"}, "workload.rollout_engine"),
        ({"workload__rollout_cache_precision": "fp8"}, "workload.rollout_cache_precision"),
        ({"workload__rollout_precision": "int4"}, "workload.rollout_precision: it is int4"),
        ({"workload__rollout_precision": "nvfp4"}, "workload.rollout_precision: it is nvfp4"),
        ({"workload__response_length": {"mean": 4096, "max": 4096}}, "workload.response_length"),
    ],
)
def test_a_job_that_nothing_can_run_is_planned_for_any_and_refused_for_automap(
    changes: dict[str, Any], field: str
) -> None:
    assert job_of(**changes).target is UNKNOWN
    with pytest.raises(SpecError) as error:
        job_of(**changes, search__target="automap")
    assert error.value.field == "search.target"
    assert field in error.value.message
    assert "search.target: any" in error.value.remedy


@pytest.mark.parametrize(
    "changes", [{"workload__rollout_engine": "sglang"}, {"architecture": "deepseek-v3"}]
)
def test_a_job_that_automap_cannot_run_is_planned_for_the_first_that_can(
    changes: dict[str, Any],
) -> None:
    job = job_of(**changes)
    assert job.target is VERL
    assert job.spec.search.target is None
    again = resolve(job.spec)
    assert (again.target, again.spec) == (VERL, job.spec)
    (line,) = [line for line in warnings(job) if line.startswith("search.target: ")]
    assert line.startswith("search.target: verl@0.9.1, the first framework that can, as automap")
    named = job_of(**changes, search__target="verl")
    assert named.spec.workload == job.spec.workload


def test_what_a_spec_leaves_open_is_as_its_target_has_it() -> None:
    models = {
        "actor": {"architecture": "llama-2-7b"},
        "reference": {"architecture": "llama-2-7b"},
        "reward": {"function": True},
    }
    inside = resolve(job_spec("grpo", models=models, search__target="slime@0.3.1"))
    assert inside.spec.workload.rollout_engine == "sglang"
    said = {"search__target": "slime@0.3.1", "workload__rollout_engine": "vllm"}
    with pytest.raises(SpecError, match=r"workload.rollout_engine: it is vllm"):
        resolve(job_spec("grpo", models=models, **said))


STREAMED = {
    "calls": [
        {"id": "actor.generate", "role": "actor", "kind": "generate"},
        {"id": "reward.forward", "role": "reward", "kind": "forward"},
        {"id": "reference.forward", "role": "reference", "kind": "forward"},
        {"id": "actor.train", "role": "actor", "kind": "train"},
    ],
    "edges": [
        {"source": "actor.generate", "target": "reward.forward", "streamed": True},
        {"source": "actor.generate", "target": "reference.forward"},
        {"source": "reward.forward", "target": "actor.train"},
        {"source": "reference.forward", "target": "actor.train"},
    ],
}


def test_automap_streams_responses_and_frameworks_do_not() -> None:
    assert job_of(search__streaming=True).target is AUTOMAP
    own = job_of().spec.model_dump(mode="json", exclude_unset=True)
    own |= {"algorithm": None, "dataflow": STREAMED}
    assert resolve(JobSpec.model_validate(own)).target is AUTOMAP
    with pytest.raises(SpecError, match=r"search\.streaming: it is true"):
        job_of(search__streaming=True, search__target=VERL.name)


CORES = {"cluster__pools": [{"name": "cores", "gpu": "cpu-core", "num_nodes": 1}]}
SMALL_HEADS: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        (
            {"workload__rollout_precision": "fp8"},
            "workload.rollout_precision",
            "it is fp8, which only GPUs run, and pool cores has CPU cores",
        ),
        (
            {"architecture": SMALL_HEADS},
            "models.actor",
            "head_dim 16, but on CPU cores attention is for 32, 64, 80",
        ),
    ],
)
def test_what_only_gpus_run_is_refused_where_a_pool_has_cores(
    changes: dict[str, Any], field: str, words: str
) -> None:
    assert job_of(**changes).target is AUTOMAP
    assert job_of(**CORES).target is AUTOMAP
    job = job_of(**changes, **CORES)
    assert job.target is UNKNOWN
    refused = refusal(AUTOMAP, job.spec, job.dataflow, job.models)
    assert refused is not None
    assert refused[0] == field
    assert refused[1].startswith(words)


def test_a_model_that_only_scores_may_have_any_head_on_cores() -> None:
    models: dict[str, Any] = {
        role: {"architecture": "llama-2-7b"} for role in ("actor", "reference")
    }
    models["reward"] = {"architecture": SMALL_HEADS}
    job = resolve(job_spec("grpo", models=models, **CORES))
    assert job.target is AUTOMAP


def test_a_strategy_keeps_the_space_that_it_reproduces() -> None:
    assert job_of(search__strategy="verl").target is ANY
    assert job_of().target is AUTOMAP


def test_a_named_stack_leaves_the_engines_of_its_kind() -> None:
    job = job_of(workload__training_stack="verl")
    assert [each.name for each in job.engines_of("actor").engines] == ["fsdp"]
    assert job.engines_of("actor").stack_of(0) == "verl"


def test_a_plan_names_its_target_its_engines_and_what_runs_it() -> None:
    plan = make_plan(small_job("ppo", num_nodes=2))
    assert plan.search.target == "automap"
    assert plan.runs_with == ["automap", "verl@0.9.1"]
    assert {copy.engine for copy in plan.copies if copy.kind == "home"} <= {"megatron", "fsdp"}
    assert refusals(resolve(plan.spec), plan.placement(), AUTOMAP) == []


def test_the_check_refuses_what_the_target_cannot_run_and_what_is_misstated() -> None:
    spec = small_job("grpo")
    job, plan = resolve(spec), make_plan(spec)
    assert violations(job, plan) == []
    (line,) = violations(job, plan.model_copy(update={"runs_with": []}))
    assert line.startswith("runs_with is []")
    copies = [copy.model_copy(update={"engine": "deepspeed"}) for copy in plan.copies]
    found = violations(job, plan.model_copy(update={"copies": copies}))
    assert any("has engine deepspeed" in line for line in found)


def test_a_plan_for_any_that_nothing_runs_says_so() -> None:
    pools = [pool(2, gpu="h100-80gb-sxm")]
    plan = make_plan(small_job(cluster__pools=pools, workload__rollout_engine="trtllm"))
    assert plan.search.target == "any"
    assert plan.runs_with == []
    assert any(line.startswith("search.target: any, as automap") for line in plan.assumptions)


def test_what_can_be_told_a_placement_is_what_refuses_nothing() -> None:
    plan = make_plan(small_job(search__target="any"))
    job, placement = resolve(plan.spec), plan.placement()
    for target in (AUTOMAP, VERL):
        runs = target.name in can_be_told(job, placement)
        assert runs == (not refusals(job, placement, target))
    assert refusals(job, placement, ANY) == []


def test_openrlhf_is_told_no_more_sequences_than_its_engines_run() -> None:
    """128 at once, which no argument changes; the price of a plan for another target has more."""
    openrlhf = TARGETS["openrlhf@0.11.2"]
    few, many = (
        make_plan(
            small_job(
                "grpo",
                workload__prompts_per_iteration=prompts,
                workload__responses_per_prompt=8,
                search__target="any",
            )
        )
        for prompts in (8, 512)
    )
    for plan, expected in ((few, False), (many, True)):
        told = refusals(resolve(plan.spec), plan.placement(), openrlhf)
        assert any("sequences on an engine, which runs 128" in each for each in told) == expected


@pytest.mark.parametrize(
    ("second", "refused"),
    [
        ((0, 16), {"any": False, "nested": False, "equal": False}),
        ((16, 8), {"any": False, "nested": False, "equal": False}),
        ((8, 8), {"any": False, "nested": False, "equal": True}),
        ((8, 16), {"any": False, "nested": True, "equal": True}),
    ],
)
def test_ranges_share_gpus_only_as_a_target_lets_them(
    second: tuple[int, int], refused: dict[RangeRelation, bool]
) -> None:
    plan = make_plan(small_job("grpo", num_nodes=4))
    spans = {"actor": (0, 16), "reference": second}
    copies = [
        copy.model_copy(update={"first_gpu": spans[copy.id][0], "num_gpus": spans[copy.id][1]})
        for copy in plan.placement().copies
        if copy.id in spans
    ]
    placement = plan.placement().model_copy(update={"copies": copies, "calls": []})
    for relation, expected in refused.items():
        target = replace(AUTOMAP, ranges=relation)
        found = refusals(resolve(plan.spec), placement, target)
        assert any("ranges that are equal or disjoint" in line for line in found) == expected
    assert AUTOMAP.ranges == "nested"


def test_every_feature_of_the_tables_is_one_of_an_architecture() -> None:
    shape = catalogue.architecture("llama-2-7b", field="architecture")
    for each in AUTOMAP.training:
        names = each.unknown_features | each.tensor_divides | each.tensor_repeats
        names |= each.context_divides | each.context_repeats
        assert all(hasattr(shape, name) for name in names)


@pytest.mark.parametrize(
    ("name", "engine", "refused"),
    [
        ("verl@0.9.1", "fsdp", {"gpt-oss-20b", "nemotron-h-8b"}),
        ("skyrl@0.3.0", "fsdp", {"gpt-oss-20b", "nemotron-h-8b", "qwen3.5-4b"}),
        ("areal@1.0.4", "fsdp", {"gpt-oss-20b", "nemotron-h-8b", "qwen3.5-4b"}),
        ("verl@0.9.1", "megatron", {"qwen3.5-4b"}),
        ("nemo-rl@0.7.0", "megatron", {"qwen3.5-4b"}),
    ],
)
def test_what_a_slice_of_the_sequence_cannot_do_has_no_context_ranks(
    name: str, engine: str, refused: set[str]
) -> None:
    """Sinks of all heads beside a part of them, and states that run along the sequence."""
    (trains,) = [each for each in TARGETS[name].training if each.name == engine]
    ones = dict.fromkeys(Layouts.__dataclass_fields__, np.array([1, 1]))
    sizes = {"num_gpus": np.array([1, 4]), "context_parallel_size": np.array([1, 4])}
    sharding = SHARDINGS.index("full" if engine == "fsdp" else "optimizer")
    layouts = Layouts(**(ones | sizes | {"sharding": np.full(2, sharding)}))
    for model in ("qwen3-30b-a3b", "gpt-oss-20b", "nemotron-h-8b", "qwen3.5-4b"):
        shape = catalogue.architecture(model, field="architecture")
        allowed = trains.allows(shape, layouts, trains=True).tolist()
        assert allowed == [True, model not in refused], model


@pytest.mark.parametrize(
    ("name", "model", "gpu", "has_adapter", "own"),
    [
        ("automap", "llama-2-7b", "h100", False, True),
        ("automap", "llama-2-7b", "cpu", False, False),
        ("automap", "llama-2-7b", "cpu", True, True),
        ("automap", "qwen3-30b-a3b", "cpu", False, True),
        ("verl@0.9.1", "llama-2-7b", "h100", False, True),
        ("any", "llama-2-7b", "h100", False, False),
    ],
)
def test_an_engine_shares_weights_where_its_kernels_and_its_memory_let_it(
    name: str, model: str, gpu: str, has_adapter: bool, own: bool
) -> None:
    shape = catalogue.architecture(model, field="architecture")
    rollout, device = TARGETS[name].rollout, catalogue.gpu_type(gpu)
    assert rollout.has_own_weights(shape, device, has_adapter=has_adapter) == own
