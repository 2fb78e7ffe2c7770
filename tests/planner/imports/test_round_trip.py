"""Export, then import: the same placement; import, then export: the same launch."""

import itertools
import re
from typing import Any

import pytest

from automap.planner import NotImportableError, Plan
from automap.planner.errors import InfeasibleError
from automap.planner.exports.exporting import export
from automap.planner.exports.memory_share import FILLED_WITH_A_CHANCE_OF
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.plan.types import Placement
from automap.planner.planning import estimate
from tests.helpers.framework_plans import SAMPLE, Wanted, placement_of, plan_of, spec_of

TARGET = "verl@0.9.1"
FORMS = SAMPLE | {
    "experts": Wanted(model="qwen3-30b-a3b", num_nodes=4, expert=8, generation_expert=8),
    "cache in fp8": Wanted(workload=(("rollout_cache_precision", "fp8"),)),
    "adapter": Wanted(algorithm="ppo", engine="fsdp", lora=8),
    "tokens": Wanted(algorithm="ppo", micro_batch=3, recompute="full"),
    "no old log-probabilities": Wanted(workload=(("old_log_probs", "rollout"),)),
    "padded": Wanted(workload=(("packed_sequences", False), ("kl", "loss"))),
    "one node": Wanted(num_nodes=1, model="qwen2.5-1.5b", tensor=1, generation_tensor=1),
    "turns": Wanted(workload=(("turns", 3), ("optimizer", "sgd"), ("epochs", 2))),
}
ALGORITHMS = ("ppo", "grpo", "remax", "rloo", "reinforce_plus_plus", "dapo")
SIZES: dict[str, dict[str, Any]] = {
    "qwen2.5-1.5b": {"tensor": 1, "generation_tensor": 1},
    "qwen2.5-7b": {"tensor": 4, "pipeline": 2, "micro_batch": 3},
    "qwen2.5-32b": {"tensor": 8, "generation_tensor": 8, "recompute": "full"},
}


def imported(plan: Plan, *, spare_cache: bool = False) -> Imported:
    """The launch of a plan, read back with what no launch says."""
    workload = plan.spec.workload
    answers = Answers(
        gpu="h100",
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
        models={
            role: model.architecture
            for role, model in plan.spec.models.items()
            if model.architecture is not None
        },
    )
    launch = export(plan, TARGET, spare_cache=spare_cache)
    return import_launch([LaunchFile("launch.sh", launch.script)], TARGET, answers)


def said(placement: Placement | Plan) -> dict[str, Any]:
    """What a placement says, by copies and calls, without the name of the pool."""
    copies = {
        copy.id: (copy.role, copy.kind, copy.first_gpu, copy.num_gpus, copy.offload)
        for copy in placement.copies
    }
    # A reference has the actor's virtual stages and is priced without.
    layouts = {
        copy.id: copy.layout.model_copy(update={"virtual_pipeline_parallel_size": 1})
        if copy.role == "reference"
        else copy.layout
        for copy in placement.copies
    }
    calls = {
        call.id: (
            call.copy_id,
            layouts.get(call.copy_id or "") if call.kind != "generate" else call.parallelism,
            call.micro_batch_size,
            call.recompute,
            # SGLang's share is written in ten-thousandths of the memory.
            None if call.kv_cache_bytes is None else round(call.kv_cache_bytes / 2**24),
        )
        for call in placement.calls
    }
    return {"copies": copies, "layouts": layouts, "calls": calls}


def same_round_trip(plan: Plan) -> None:
    found = imported(plan)
    assert said(found.placement) == said(plan)
    without = {"environment_seconds_per_turn", "expected_acceptance"}
    given = plan.spec.workload.model_dump(exclude=without)
    assert found.spec.workload.model_dump(exclude=without) == given
    assert found.spec.models == plan.spec.models
    assert (found.spec.algorithm, found.spec.name) == (plan.spec.algorithm, plan.spec.name)
    assert found.spec.search.staleness == plan.spec.search.staleness
    again = estimate(found.spec, found.placement)
    assert hazards(found, again) == []
    launches = [export(each, TARGET, spare_cache=False) for each in (plan, again)]
    settings = [{each.key: each.value for each in launch.settings} for launch in launches]
    assert settings[0] == settings[1]
    assert {each.kind for each in found.remarks} <= {"assumed", "not priced"}
    same_with_spare_cache(plan, again)


def same_with_spare_cache(plan: Plan, exact: Plan) -> None:
    """Memory that the plan leaves free is more cache, no longer iteration and no refusal."""
    found = imported(plan, spare_cache=True)
    caches = [
        {call.id: call.kv_cache_bytes for call in placement.calls if call.kind == "generate"}
        for placement in (exact.placement(), found.placement)
    ]
    assert all(caches[1][name] >= cache for name, cache in caches[0].items())
    again = estimate(found.spec, found.placement)
    assert hazards(found, again) == []
    assert again.iteration_seconds <= exact.iteration_seconds * (1 + 1e-9)
    allowed = max(FILLED_WITH_A_CHANCE_OF, exact.out_of_memory_probability or 0)
    assert (again.out_of_memory_probability or 0) <= allowed * 1.01


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_an_exported_plan_is_read_back(name: str) -> None:
    same_round_trip(plan_of(FORMS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_product_of_exported_plans_is_read_back(algorithm: str) -> None:
    done = 0
    for model, nodes, apart, engine in itertools.product(
        SIZES, (1, 2, 4), (False, True), ("megatron", "fsdp")
    ):
        if apart and (nodes < 4 or algorithm == "remax"):
            continue
        staleness = nodes // 2 if apart and algorithm != "rloo" else 0
        wanted = Wanted(algorithm=algorithm, model=model, num_nodes=nodes, engine=engine)
        # With more than one verl's engines never drain.
        wanted = wanted.but(apart=apart, staleness=staleness, continuous=staleness > 1)
        try:
            plan = plan_of(wanted.but(**SIZES[model]))
        except InfeasibleError:
            continue
        same_round_trip(plan)
        done += 1
    assert done >= 10


def test_a_part_of_a_node_is_read_back() -> None:
    wanted = Wanted(num_nodes=1, tensor=2, generation_tensor=2)
    spec = spec_of(wanted)
    placed = placement_of(wanted, spec)
    half = {"data_parallel_size": 2}
    copies = [
        copy.model_copy(update={"num_gpus": 4, "layout": copy.layout.model_copy(update=half)})
        for copy in placed.copies
    ]
    calls = [
        call.model_copy(update={"parallelism": call.parallelism.model_copy(update=half)})
        if call.parallelism
        else call
        for call in placed.calls
    ]
    part = placed.model_copy(update={"copies": copies, "calls": calls})
    same_round_trip(estimate(spec, part))


@pytest.mark.slow
def test_an_export_is_read_without_its_placeholders_but_for_the_models() -> None:
    plan = plan_of(FORMS["ppo"])
    files = [LaunchFile("launch.sh", export(plan, TARGET).script)]
    lengths = plan.spec.workload.prompt_length, plan.spec.workload.response_length
    with pytest.raises(NotImportableError, match=r"--model|actor_rollout_ref.model.path") as caught:
        import_launch(files, TARGET, Answers("h100", {}, *lengths))
    assert len(caught.value.reasons) == 2
    models = {"ACTOR_MODEL": "/models/Qwen2.5-7B-Instruct", "CRITIC_MODEL": "Qwen/Qwen2.5-7B"}
    found = import_launch(files, TARGET, Answers("h100", models, *lengths))
    assert found.spec.models["critic"].architecture == "qwen2.5-7b"


def test_adapters_on_some_layers_are_told_as_priced_on_all() -> None:
    plan = plan_of(Wanted(algorithm="ppo", lora=8))
    written = export(plan, TARGET).script
    key = "actor_rollout_ref.model.lora.target_modules="
    assert written.count(key) == 1
    answers = Answers(
        gpu="h100",
        prompt_length=plan.spec.workload.prompt_length,
        response_length=plan.spec.workload.response_length,
        models=dict.fromkeys(("actor", "critic"), plan.spec.models["actor"].architecture),
    )
    for modules, kinds in (("linear_qkv,linear_proj,linear_fc1,linear_fc2", 0), ("linear_qkv", 1)):
        script = re.sub(rf"({re.escape(key)}\[)[^\]]*", rf"\g<1>{modules}", written)
        found = import_launch([LaunchFile("launch.sh", script)], TARGET, answers)
        noted = [each.text for each in found.remarks if key[:-1] in each.text]
        assert len(noted) == kinds, noted
        assert all("priced as on every layer" in each for each in noted)
