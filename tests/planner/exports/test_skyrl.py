"""The launch of a plan for SkyRL: complete, explained, and each limit seen to refuse."""

import os
import subprocess
from pathlib import Path

import pytest

from automap.planner import Launch, Plan
from automap.planner.exports.exporting import export
from automap.planner.exports.lines import plain
from automap.planner.exports.skyrl.program import PROGRAM
from automap.planner.exports.skyrl.values import quoted
from automap.planner.plan.types import GenerationTail
from automap.planner.spec import DataflowSpec, LengthSpec
from automap.planner.units import GIB
from tests.helpers.broken_exports import (
    assert_every_limit_refuses,
    changed,
    regenerated,
    relaid,
    respecified,
)
from tests.helpers.framework_plans import Wanted
from tests.helpers.framework_plans import plan_of as plan_of_any
from tests.helpers.skyrl_plans import SAMPLE, SKYRL, given, launch, plan_of

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *importlib.metadata*) echo "$INSTALLED" ;;
  *cluster_resources*) echo 1000000 ;;
  */ray*) printf '%s\\0' "$@" END >> "$RECORD" ;;
esac
"""
ENGINE = "generator.inference_engine."


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


@pytest.fixture(scope="module")
def launches(plans: dict[str, Plan]) -> dict[str, Launch]:
    return {name: export(plan, SKYRL.target) for name, plan in plans.items()}


def submitted(launch: Launch, folder: Path, **values: str) -> tuple[int, str, list[str]]:
    """(exit code, errors, what is submitted) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("ray", "python3"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    script = folder / "launch.sh"
    script.write_text(launch.script, encoding="utf-8")
    for name, text in launch.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    filled = {each.variable: "x" for each in launch.placeholders} | {"INSTALLED": "0.3.0"}
    filled |= {"HEAD_ADDRESS": "node", "NODE_RANK": "0"} | values
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{tools}:{os.defpath}", "RECORD": str(record)} | filled,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    words = record.read_text(encoding="utf-8").split("\0")
    begun = words.index("python3") if "python3" in words else len(words) - 1
    end = words.index("END", begun) if "END" in words[begun:] else len(words)
    return done.returncode, done.stderr, words[begun + 1 : end]


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in SKYRL.settings for key in setting.keys.values()}
    written = {key for launch in launches.values() for key in given(launch)}
    only_read = {
        "trainer.ref.model.path",
        "trainer.policy.model.lora.rank",
        "trainer.critic.model.lora.rank",
        "trainer.algorithm.off_policy_correction.tis_ratio_type",
        f"{ENGINE}engine_init_kwargs.kv_cache_dtype",
    }
    stages = {key for key in described if "layers_in_" in key}
    assert described - written == only_read | stages


@pytest.mark.parametrize("name", ["ppo", "ppo, each apart", "tokens", "turns"])
def test_what_is_submitted_is_what_the_settings_say(
    name: str, launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches[name], tmp_path)
    assert code == 0, errors
    assert words[:2] == ["-m", SKYRL.entry]
    lists = {"data.train_data": "['x']"}
    assert words[2:] == [
        f"{each.key}={lists.get(each.key, quoted('x')) if each.placeholder else each.value}"
        for each in launches[name].settings
    ]


def test_stale_rollouts_start_the_program_beside_the_script(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    launch = launches["ppo, stale"]
    assert set(launch.files) == {PROGRAM}
    compile(launch.files[PROGRAM], PROGRAM, "exec")
    code, errors, words = submitted(launch, tmp_path)
    assert (code, words[0]) == (0, str(tmp_path / PROGRAM)), errors
    (tmp_path / "empty").mkdir()
    bare = launch.model_copy(update={"files": {}})
    code, errors, words = submitted(bare, tmp_path / "empty")
    assert (code, words) == (2, [])
    assert f"put {PROGRAM} beside this script" in errors
    assert {name for name, each in launches.items() if each.files} == {
        name for name, laid in SAMPLE.items() if laid.wanted.staleness
    }


def test_the_switches_are_those_of_the_form(launches: dict[str, Launch]) -> None:
    def switches(name: str) -> tuple[str, str]:
        found = given(launches[name])
        keys = ("colocate_all", "colocate_policy_ref")
        return tuple(found[f"trainer.placement.{key}"] for key in keys)  # type: ignore[return-value]

    assert switches("ppo") == ("True", "True")
    assert switches("ppo, the critic apart") == ("False", "True")
    assert switches("ppo, each apart") == ("False", "False")


def test_units_are_skyrls(launches: dict[str, Launch]) -> None:
    found = given(launches["grpo"])
    # 256 prompts with 4 responses in 2 updates.
    assert (found["trainer.train_batch_size"], found["trainer.policy_mini_batch_size"]) == (
        "256",
        "128",
    )
    # Four of the longest sequences at most; padded ones are numbers of sequences.
    assert 1536 < int(found["trainer.max_tokens_per_microbatch"]) <= 4 * 1536
    assert given(launches["padded"])["trainer.max_tokens_per_microbatch"] == "-1"
    tokens = given(launches["tokens"])
    # Three of the longest sequences, on average shorter than they.
    assert 1536 < int(tokens["trainer.max_tokens_per_microbatch"]) <= 3 * 1536
    assert given(launches["turns"])["generator.max_input_length"] == "1536"
    mixture = given(launches["mixture"])
    assert mixture[f"{ENGINE}num_engines"] == "1"
    assert mixture[f"{ENGINE}data_parallel_size"] == "4"
    key = "trainer.policy.megatron_config.expert_tensor_parallel_size"
    assert mixture[key] == "1"


@pytest.mark.parametrize(
    ("name", "loss", "mask"),
    [
        ("grpo", "regular", "null"),
        ("ppo, stale", "rollout_is", "null"),
        ("stale, in the loss", "rollout_is", "0.0001"),
        ("stale, log-probabilities of the rollout", "rollout_is", "null"),
        ("reinforce++, log-probabilities of the rollout", "rollout_is", "null"),
    ],
)
def test_log_probabilities_are_computed_where_the_plan_computes_them(
    name: str, loss: str, mask: str, launches: dict[str, Launch], plans: dict[str, Plan]
) -> None:
    """SkyRL skips them without a loss, a mask or a divergence in the reward that reads them."""
    found = given(launches[name])
    assert found["trainer.algorithm.policy_loss_type"] == loss
    key = "trainer.algorithm.off_policy_correction.outlier_token_is_threshold_low"
    assert found[key] == mask
    in_reward = found["trainer.algorithm.use_kl_in_reward"] == "True"
    computes = loss == "regular" or mask != "null" or in_reward
    assert computes == any(call.id == "actor.forward" for call in plans[name].calls)


def test_dynamic_sampling_is_said_in_the_words_of_each_trainer(launches: dict[str, Launch]) -> None:
    now, stale = given(launches["dapo"]), given(launches["dapo, stale"])
    key = "trainer.algorithm.dynamic_sampling.type"
    assert (now[key], stale[key]) == ("filter", "null")
    assert stale["trainer.fully_async.sample_full_batch"] == "True"
    assert stale["trainer.algorithm.zero_variance_filter"] == "True"


def test_a_script_with_placeholders_left_or_another_version_starts_nothing(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches["grpo"], tmp_path, ACTOR_MODEL="FILL_IN")
    assert (code, words) == (2, [])
    assert "to be filled in: ACTOR_MODEL" in errors
    code, errors, words = submitted(launches["grpo"], tmp_path, INSTALLED="0.2.0")
    assert (code, words) == (2, [])
    assert "0.2.0 is installed" in errors


def test_a_path_is_no_second_override(launches: dict[str, Launch], tmp_path: Path) -> None:
    path = "a' trainer.seed=1 $(touch owned) ${trainer.seed}"
    _, _, words = submitted(launches["grpo"], tmp_path, ACTOR_MODEL=path)
    assert f"trainer.policy.model.path={quoted(path)}" in words
    assert not (tmp_path / "owned").exists()


def test_words_that_need_quotes_are_no_plain_values() -> None:
    assert plain(["core_attn", "reinforce++"]) == "[core_attn,reinforce++]"
    with pytest.raises(ValueError, match="needs quotes"):
        plain("a b")


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, ppo, mega = (plan_of(SAMPLE[name]) for name in ("grpo", "ppo", "grpo, megatron"))
    apart, each = plan_of(SAMPLE["ppo, the critic apart"]), plan_of(SAMPLE["ppo, each apart"])
    stale, padded = plan_of(SAMPLE["ppo, stale"]), plan_of(SAMPLE["padded"])
    larger = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-7b"})
    models = {**grpo.spec.models, "reference": larger}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    pools = [pool, pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})]
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    free = respecified(grpo, "search", target="any")
    forward = next(call for call in each.calls if call.id == "reference.forward")
    return {
        "algorithm": free.model_copy(update={"spec": free.spec.model_copy(update=own)}),
        "forms": changed(each, "copies", "critic", first_gpu=0),
        "in_turn": changed(each, "calls", "critic.forward", start_seconds=forward.start_seconds),
        "overlap": changed(stale, "copies", "actor.shadow", first_gpu=4),
        "one_engine": changed(
            relaid(mega, "reference", sharding="full"), "copies", "reference", engine="fsdp"
        ),
        "megatron_critic": changed(
            relaid(ppo, "actor", sharding="optimizer"), "copies", "actor", engine="megatron"
        ),
        "reward_model": plan_of_any(Wanted(reward_model=True)),
        "fsdp_sizes": relaid(ppo, "critic", tensor_parallel_size=2, data_parallel_size=4),
        "fsdp_sharding": relaid(ppo, "critic", sharding="none"),
        "fsdp_recompute": changed(ppo, "calls", "critic.train", recompute="selective"),
        "megatron_sharding": relaid(mega, "actor", sharding="none"),
        "virtual_stages": relaid(mega, "actor", virtual_pipeline_parallel_size=2),
        "stages": changed(mega, "copies", "actor", layers_per_stage=[5, 8, 9, 6]),
        "adapters": plan_of_any(Wanted(engine="fsdp", lora=8)),
        "reference_model": free.model_copy(
            update={"spec": free.spec.model_copy(update={"models": models})}
        ),
        "optimizer": respecified(free, "workload", optimizer="sgd"),
        "reward_kl": respecified(free, "workload", old_log_probs="rollout"),
        "stale_updates": respecified(
            respecified(stale, "search", target="any"), "workload", updates_per_epoch=2
        ),
        "one_micro_batch": changed(ppo, "calls", "critic.train", micro_batch_size=8),
        "one_budget": changed(free, "calls", "actor.train", micro_batch_size=3),
        "one_recompute": changed(ppo, "calls", "critic.train", recompute="none"),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=4),
        "engine_experts": regenerated(grpo, tensor_parallel_size=4, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=2),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(
            respecified(respecified(apart, "search", target="any"), "cluster", pools=pools),
            "copies",
            "actor.shadow",
            pool="b",
        ),
        "whole_nodes": relaid(apart, "critic", data_parallel_size=4),
        "staleness_together": respecified(grpo, "search", staleness=1, target="any"),
        "barrier": respecified(free, "search", iteration_barrier=False),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "continuous": respecified(stale, "search", target="any", continuous_rollouts=False),
        "pretrain": respecified(
            respecified(ppo, "search", target="any"), "workload", pretrain_loss=True
        ),
        "host_optimizer": respecified(free, "workload", optimizer_cpu_offload=True),
        "precision": respecified(free, "workload", rollout_precision="fp8"),
        "cache_precision": respecified(
            respecified(free, "workload", rollout_engine="sglang"),
            "workload",
            rollout_cache_precision="fp8",
        ),
        "engine_bytes": respecified(free, "workload", rollout_engine="sglang"),
        "optimizer_steps": respecified(free, "workload", updates_per_epoch=3),
        "ranks_divide": respecified(
            ppo, "workload", prompts_per_iteration=260, updates_per_epoch=52
        ),
        "scored_divide": respecified(free, "workload", prompts_per_iteration=257),
        "padded_context": relaid(
            padded, "actor", "reference", context_parallel_size=2, data_parallel_size=4
        ),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            free, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(grpo, "copies", "actor", host_bytes=300 * GIB),
    }


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it(plans: dict[str, Plan]) -> None:
    assert_every_limit_refuses(SKYRL, broken(), plans)


def test_stages_of_unlike_length_are_said_at_the_ends(plans: dict[str, Plan]) -> None:
    uneven = changed(plans["grpo, megatron"], "copies", "actor", layers_per_stage=[13, 15])
    found = given(launch(uneven))
    key = "trainer.policy.megatron_config.transformer_config_kwargs.num_layers_in_"
    assert found[f"{key}first_pipeline_stage"] == "13"
    assert found[f"{key}last_pipeline_stage"] == "15"
