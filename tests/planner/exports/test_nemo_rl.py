"""The launch of a plan for NeMo-RL: complete, typed, explained, and nothing misspelt."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap.planner import Launch, NotExportableError, Plan
from automap.planner.errors import InfeasibleError
from automap.planner.exports.documents import yaml_text, yaml_value
from automap.planner.exports.exporting import export
from automap.planner.plan.types import GenerationTail
from automap.planner.runs.foreign_logs import foreign_run
from automap.planner.spec import DataflowSpec, LengthSpec
from automap.planner.units import GIB
from tests.helpers.broken_exports import (
    assert_every_limit_refuses,
    changed,
    regenerated,
    relaid,
    respecified,
)
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.nemo_rl_plans import (
    APART,
    DTENSOR,
    NEMO_RL,
    SAMPLE,
    faults,
    flat,
    product,
)

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *cluster_resources*) echo 1000000 ;;
  */uv*) printf '%s\\0' "$@" "$ACTOR_MODEL" >> "$RECORD" ;;
esac
"""


def document(launch: Launch) -> dict[str, Any]:
    """The recipe of a launch as YAML has it."""
    found: dict[str, Any] = yaml.safe_load(launch.files["recipe.yaml"])
    return found


@pytest.fixture(scope="module")
def launches() -> dict[str, Launch]:
    return {
        name: export(plan_of(wanted), NEMO_RL.target, spare_cache=False)
        for name, wanted in SAMPLE.items()
    }


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in NEMO_RL.settings for key in setting.keys.values()}
    written = {each.key for launch in launches.values() for each in launch.settings}
    only_read = {
        "policy.dynamic_batching.train_mb_tokens",
        "policy.dynamic_batching.logprob_mb_tokens",
    }
    assert described - written == only_read


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recipe_is_known_typed_and_consistent(name: str, launches: dict[str, Launch]) -> None:
    launch = launches[name]
    found = document(launch)
    assert faults(found) == []
    # YAML reads what the settings say.
    values = dict(flat(found))
    assert values.keys() == {"defaults"} | {each.key for each in launch.settings}
    for each in launch.settings:
        if not each.placeholder:
            assert yaml.safe_load(each.value) == values[each.key]


def test_what_is_broken_is_refused(launches: dict[str, Launch]) -> None:
    def but(section: str, **values: Any) -> list[str]:
        found = document(launches["ahead"])
        node = found
        for name in section.split("."):
            node = node[name]
        node.update(values)
        return faults(found)

    assert but("policy", precision="bfloat16") == []
    assert but("policy", train_global_batchsize=1) == ["policy.train_global_batchsize is no key"]
    assert but("policy.megatron_cfg", tensor_model_parallel_size="two")
    assert but("policy.megatron_cfg", tensor_model_parallel_size=3)
    assert but("policy.megatron_cfg", enabled=1)
    assert but("policy", train_global_batch_size=1000)
    assert but("policy", logprob_batch_size=5)
    assert but("policy.sequence_packing", train_mb_tokens=100)
    assert but("policy.dtensor_cfg", enabled=True)
    assert but("policy.generation.colocated", enabled=True)
    assert but("policy.generation.colocated.resources", gpus_per_node=4)
    assert but("policy.generation.vllm_cfg", gpu_memory_utilization=1.2)
    assert but("policy.generation.vllm_cfg", tensor_parallel_size=5)
    assert but("policy.generation.vllm_cfg", async_engine=False)
    assert but("loss_fn", use_importance_sampling_correction=False)


def plans(wanted: dict[str, Wanted]) -> dict[str, Plan]:
    found = {}
    for name, each in wanted.items():
        try:
            found[name] = plan_of(each)
        except InfeasibleError:
            continue
    return found


def wrong(wanted: dict[str, Wanted], *, least: int) -> dict[str, list[str]]:
    """Plan → what is wrong with its recipe, of at least so many that can be priced."""
    made = plans(wanted)
    assert len(made) >= least
    found = {name: faults(document(export(plan, NEMO_RL.target))) for name, plan in made.items()}
    return {name: each for name, each in found.items() if each}


@pytest.mark.slow
def test_a_part_of_the_product_is_known_typed_and_consistent() -> None:
    assert wrong(dict(list(product(("grpo",)).items())[::7]), least=6) == {}


@pytest.mark.slow
def test_the_whole_product_is_known_typed_and_consistent() -> None:
    assert wrong(product(), least=100) == {}


def test_each_key_follows_its_decision(launches: dict[str, Launch]) -> None:
    for launch in launches.values():
        lines = launch.files["recipe.yaml"].splitlines()
        for place, line in enumerate(lines):
            if line.startswith("    ") and line.rstrip().endswith(":"):
                # The first key of a section says why.
                assert lines[place + 1].strip().startswith("#") or lines[place + 1].endswith(":")


def test_units_are_nemo_rls(launches: dict[str, Launch]) -> None:
    def of(name: str) -> dict[str, object]:
        return dict(flat(document(launches[name])))

    # 256 prompts with 4 responses in 2 updates; 4 engines of 4 GPUs.
    found = of("grpo")
    assert found["grpo.num_prompts_per_step"] == 256
    assert found["policy.train_global_batch_size"] == 512
    assert found["policy.generation.vllm_kwargs.max_num_seqs"] == 1024 // 4
    assert found["policy.generation.vllm_kwargs.kv_cache_memory_bytes"] == 16 * GIB
    assert found["policy.generation.colocated.resources.num_nodes"] is None
    # Budgets are of whole sequences, which two context ranks share.
    whole, shared = of("selective"), of("reinforce++")
    key = "policy.sequence_packing.train_mb_tokens"
    halved = export(plan_of(SAMPLE["reinforce++"].but(context=1)), NEMO_RL.target)
    assert shared[key] == dict(flat(document(halved)))[key]
    assert int(str(whole[key])) > int(str(shared[key]))
    apart = of("ahead")
    assert apart["policy.generation.colocated.resources.num_nodes"] == 1
    assert apart["cluster.num_nodes"] == 2
    assert apart["grpo.async_grpo.max_trajectory_age_steps"] == 2
    flight = "grpo.async_grpo.in_flight_weight_updates"
    assert (apart[flight], of("in flight")[flight]) == (False, True)
    assert of("in flight")["grpo.async_grpo.recompute_kv_cache_after_weight_updates"] is True
    assert of("dapo")["grpo.batch_multiplier"] == 2.0
    assert of("uneven stages")["policy.megatron_cfg.num_layers_in_first_pipeline_stage"] == 9
    assert of("mixture")["policy.generation.vllm_cfg.async_engine"] is True
    assert of("dtensor")["policy.megatron_cfg.enabled"] is False


def test_one_node_is_split_by_gpus() -> None:
    wanted = Wanted(num_nodes=1, model="qwen2.5-1.5b", apart=True, offload="none", tensor=2)
    found = dict(flat(document(export(plan_of(wanted), NEMO_RL.target))))
    assert found["cluster.gpus_per_node"] == 8
    assert found["policy.generation.colocated.resources.gpus_per_node"] == 4


def started(launch: Launch, folder: Path, **values: str) -> tuple[int, str, list[str]]:
    """(exit code, errors, what uv is given) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("ray", "python3", "uv"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    script = folder / "launch.sh"
    script.write_text(launch.script, encoding="utf-8")
    filled = {each.variable: "x" for each in launch.placeholders}
    filled |= {"KL_COEFFICIENT": "0.01", "NEMO_RL_FOLDER": str(folder)}
    filled |= {"NEMO_RL_VERSION": "v0.7.0", "HEAD_ADDRESS": "node", "NODE_RANK": "0"} | values
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{tools}:{os.defpath}", "RECORD": str(record)} | filled,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    words = record.read_text(encoding="utf-8").split("\0")[:-1]
    return done.returncode, done.stderr, words


def test_the_script_starts_the_recipe_and_nothing_before_all_is_there(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    launch = launches["apart"]
    code, errors, words = started(launch, tmp_path)
    assert (code, words) == (2, [])
    assert "put recipe.yaml into" in errors
    recipe = tmp_path / "examples" / "configs" / "recipe.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(launch.files["recipe.yaml"], encoding="utf-8")
    model = "a model; touch owned"
    code, errors, words = started(launch, tmp_path, ACTOR_MODEL=model)
    config = "examples/configs/recipe.yaml"
    assert (code, words) == (0, ["run", "examples/run_grpo.py", "--config", config, model]), errors
    for values, told in (
        ({"ACTOR_MODEL": "FILL_IN"}, "to be filled in: ACTOR_MODEL"),
        ({"NEMO_RL_VERSION": "v0.6.0"}, "v0.6.0 is installed"),
    ):
        code, errors, words = started(launch, tmp_path, **values)
        assert (code, words) == (2, [])
        assert told in errors


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, apart = plan_of(Wanted()), plan_of(APART)
    dtensor = plan_of(DTENSOR)
    mixture = plan_of(SAMPLE["mixture"])
    smaller = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-1.5b"})
    models = {**grpo.spec.models, "reference": smaller}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    other = pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})
    two = respecified(apart, "cluster", pools=[pool, other])
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    sharded = dtensor.copies[0].layout.model_copy(
        update={"tensor_parallel_size": 4, "data_parallel_size": 8}
    )
    return {
        "algorithm": grpo.model_copy(update={"spec": grpo.spec.model_copy(update=own)}),
        "one_range": changed(grpo, "copies", "reference", first_gpu=8),
        "one_layout": relaid(grpo, "reference", tensor_parallel_size=2, data_parallel_size=8),
        "adapters": plan_of(Wanted(engine="fsdp", lora=8)),
        "reference_model": grpo.model_copy(
            update={"spec": grpo.spec.model_copy(update={"models": models})}
        ),
        "reference_host": changed(grpo, "copies", "reference", offload="none"),
        "one_engine": changed(grpo, "copies", "reference", engine="fsdp"),
        "megatron_sharding": relaid(grpo, "actor", sharding="none"),
        "fsdp_sizes": plan_of(DTENSOR.but(context=2)),
        "fsdp_sharding": plan_of(DTENSOR.but(sharding="gradient")),
        "fsdp_recompute": changed(dtensor, "calls", "actor.train", recompute="selective"),
        "virtual_stages": plan_of(Wanted(model="qwen2.5-1.5b", tensor=2, pipeline=2, virtual=2)),
        "stages": changed(grpo, "copies", "actor", layers_per_stage=[7, 6, 8, 7]),
        "offload_optimizer": changed(apart, "copies", "actor", offload="optimizer"),
        "offload_to_generate": changed(grpo, "copies", "actor", offload="none"),
        "one_micro_batch": changed(grpo, "calls", "reference.forward", micro_batch_size=8),
        "rollout_log_probs": plan_of(Wanted(workload=(("old_log_probs", "rollout"),))),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=2),
        "engine_experts": regenerated(mixture, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=5),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(two, "copies", "actor.shadow", pool="b"),
        "whole_nodes": relaid(grpo, "actor", "reference", data_parallel_size=3),
        "overlap": changed(apart, "copies", "actor.shadow", first_gpu=4),
        "staleness_together": respecified(grpo, "search", staleness=1),
        "stale_filter": respecified(apart, "search", staleness=1).model_copy(
            update={
                "spec": respecified(apart, "search", staleness=1).spec.model_copy(
                    update={"algorithm": "dapo"}
                )
            }
        ),
        "fsdp_experts": changed(
            changed(mixture, "copies", "actor", engine="fsdp", layout=sharded),
            "copies",
            "reference",
            engine="fsdp",
            layout=sharded,
        ),
        "barrier": respecified(grpo, "search", iteration_barrier=False),
        "epochs": respecified(grpo, "workload", epochs=2),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "host_optimizer": respecified(dtensor, "workload", optimizer_cpu_offload=True),
        "precision": respecified(grpo, "workload", training_precision="fp8"),
        "cache_precision": respecified(grpo, "workload", rollout_cache_precision="fp8"),
        "engine_bytes": respecified(grpo, "workload", rollout_engine="sglang"),
        "optimizer_steps": respecified(grpo, "workload", updates_per_epoch=3),
        "ranks_divide": respecified(
            dtensor, "workload", prompts_per_iteration=260, updates_per_epoch=52
        ),
        "padded": respecified(grpo, "workload", packed_sequences=False),
        "reward_model": plan_of(Wanted(reward_model=True)),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            grpo, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(grpo, "copies", "reference", host_bytes=300 * GIB),
    }


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it() -> None:
    assert_every_limit_refuses(NEMO_RL, broken())


def test_an_export_raises_the_reasons() -> None:
    with pytest.raises(NotExportableError, match="whose value model has keys of its own"):
        export(plan_of(Wanted(algorithm="ppo")), NEMO_RL.target)


def test_values_have_the_type_of_their_key() -> None:
    size = NEMO_RL.setting("tensor_parallel_size", engine="megatron")
    assert yaml_value(4, size) == "4"
    assert yaml_value(None, size) == "null"
    with pytest.raises(ValueError, match="no whole"):
        yaml_value("4", size)
    with pytest.raises(ValueError, match="no flag"):
        yaml_value(1, NEMO_RL.setting("colocated"))
    for text in ("no", "a: b", "'x' # y", "${oc.env:HOME}", "1e3"):
        assert yaml.safe_load(yaml_text(text)) == text.replace("${", "\\${")


def test_its_log_is_read() -> None:
    plan = plan_of(SAMPLE["grpo"])
    step = {
        "timing/train/total_step_time": 30.0,
        "timing/train/generation": 12.0,
        "timing/train/policy_and_reference_logprobs": 6.0,
        "timing/train/policy_training": 9.0,
        "train/mean_gen_tokens_per_sample": 480.0,
    }
    found = foreign_run({1: step, 2: step}, "nemo-rl", plan, source="log")
    seconds = {each.call: each.seconds for each in found.observed}
    assert (seconds["actor.generate"], seconds["actor.train"]) == (12.0, 9.0)
    assert seconds["actor.forward"] + seconds["reference.forward"] == pytest.approx(6.0)
    assert (found.missing, found.iteration_seconds) == ([], 30.0)
    assert found.lengths == {"mean": 480.0}
