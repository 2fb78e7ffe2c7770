"""The launch of a plan for OpenRLHF: complete, typed, explained, and each limit seen to refuse."""

import os
import subprocess
from pathlib import Path

import pytest

from automap.planner import Launch, Plan
from automap.planner.exports.exporting import export
from automap.planner.plan.types import GenerationTail
from automap.planner.spec import DataflowSpec, LengthSpec
from automap.planner.units import GIB
from tests.helpers.broken_exports import (
    assert_every_limit_refuses,
    changed,
    limits_of,
    regenerated,
    relaid,
    respecified,
)
from tests.helpers.framework_plans import Wanted
from tests.helpers.framework_plans import plan_of as plan_of_any
from tests.helpers.openrlhf_plans import OPENRLHF, SAMPLE, SMALL, Laid, given, plan_of, words_of

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *importlib.metadata*) echo "$INSTALLED" ;;
  *cluster_resources*) echo 1000000 ;;
  */ray*) printf '%s\\0' "$@" END >> "$RECORD" ;;
esac
"""


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


@pytest.fixture(scope="module")
def launches(plans: dict[str, Plan]) -> dict[str, Launch]:
    return {name: export(plan, OPENRLHF.target) for name, plan in plans.items()}


def submitted(launch: Launch, folder: Path, **values: str) -> tuple[int, str, list[str]]:
    """(exit code, errors, words after the program) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("ray", "python3"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    script = folder / "launch.sh"
    script.write_text(launch.script, encoding="utf-8")
    filled = {each.variable: "x" for each in launch.placeholders}
    filled |= {"KL_COEFFICIENT": "0.01", "INSTALLED": "0.11.2"}
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
    begun = words.index(OPENRLHF.entry) if OPENRLHF.entry in words else len(words) - 1
    end = words.index("END", begun) if "END" in words[begun:] else len(words)
    return done.returncode, done.stderr, words[begun + 1 : end]


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in OPENRLHF.settings for key in setting.keys.values()}
    written = {key for launch in launches.values() for key in given(launch)}
    only_read = {"--rollout.vllm_generate_batch_size", "--ref.offload", "--reward.offload"}
    assert described - written == only_read


@pytest.mark.parametrize("name", ["ppo", "ppo in two groups", "ahead", "tokens", "turns"])
def test_what_is_submitted_is_what_the_settings_say(
    name: str, launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches[name], tmp_path)
    assert code == 0, errors
    joined = [word for each in words for word in each.split("=", 1)]
    assert joined == words_of(launches[name])


def test_the_switches_are_those_of_the_form(launches: dict[str, Launch]) -> None:
    switches = {
        name: {
            key.removeprefix("--train.")
            for key in given(launch)
            if key.startswith(("--train.colocate", "--train.async_enable"))
        }
        for name, launch in launches.items()
    }
    assert switches["ppo"] == {"colocate_all"}
    assert switches["ppo in two groups"] == {"colocate_all", "colocate_critic_reward"}
    assert switches["ppo, a reward model, apart"] == {
        "colocate_actor_ref",
        "colocate_critic_reward",
    }
    assert switches["each apart"] == set()
    assert switches["ahead"] == {"colocate_all", "async_enable"}
    two = given(launches["ppo in two groups"])
    # There is no reward model, and its GPUs are compared all the same.
    assert two["--reward.num_gpus_per_node"] == two["--critic.num_gpus_per_node"] == "8"
    assert "--ds.enable_sleep" in given(launches["ppo"])
    assert "--ds.enable_sleep" not in two
    assert "--vllm.enable_sleep" not in given(launches["each apart"])


def test_units_are_openrlhfs(launches: dict[str, Launch]) -> None:
    found = given(launches["grpo"])
    # 256 prompts with 4 responses in 2 updates, 100 times.
    assert (found["--rollout.batch_size"], found["--train.batch_size"]) == ("256", "512")
    assert found["--data.max_samples"] == str(256 * 100)
    assert (found["--data.max_len"], found["--rollout.max_new_tokens"]) == ("1536", "1024")
    assert given(launches["tokens"])["--train.dynamic_batch_enable"] == "True"
    assert given(launches["dapo"])["--actor.eps_clip_low_high"] == "0.2 0.28"


def test_the_share_of_memory_is_the_sum_shown(launches: dict[str, Launch]) -> None:
    for name in ("grpo", "ahead"):
        key = "--vllm.gpu_memory_utilization"
        [share] = [each for each in launches[name].settings if each.key == key]
        words = share.because.replace(",", "").split()
        other, cache, memory = (int(word) for word in words if word.isdecimal())
        # The weights of the actor alone.
        assert other > 1.4e9 * 2 / (2 if name == "ahead" else 1)
        assert float(share.value) == pytest.approx((other + cache) / memory, abs=1e-4)


def test_a_script_with_placeholders_left_or_another_version_starts_nothing(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches["grpo"], tmp_path, ACTOR_MODEL="FILL_IN")
    assert (code, words) == (2, [])
    assert "to be filled in: ACTOR_MODEL" in errors
    code, errors, words = submitted(launches["grpo"], tmp_path, INSTALLED="0.10.1")
    assert (code, words) == (2, [])
    assert "0.10.1 is installed" in errors


def test_a_path_is_no_second_argument(launches: dict[str, Launch], tmp_path: Path) -> None:
    path = "--ds.zero_stage $(touch owned) 'a b'"
    _, _, words = submitted(launches["grpo"], tmp_path, PROMPT_DATA=path)
    assert f"--data.prompt_dataset={path}" in words
    assert not (tmp_path / "owned").exists()


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, ppo = plan_of(SAMPLE["grpo"]), plan_of(SAMPLE["ppo"])
    apart, ahead = plan_of(SAMPLE["ppo, a reward model, apart"]), plan_of(SAMPLE["ahead"])
    two, padded = plan_of(SAMPLE["ppo in two groups"]), plan_of(SAMPLE["padded"])
    smaller = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-7b"})
    models = {**grpo.spec.models, "reference": smaller}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    pools = [pool, pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})]
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    lora = plan_of_any(Wanted(engine="fsdp", lora=8))
    free = respecified(grpo, "search", target="any")
    return {
        "algorithm": free.model_copy(update={"spec": free.spec.model_copy(update=own)}),
        "forms": changed(apart, "copies", "critic", first_gpu=0),
        "overlap": changed(apart, "copies", "critic", first_gpu=4),
        "sleep": changed(ppo, "copies", "critic", offload="none"),
        "one_offload": changed(ppo, "copies", "critic", offload="weights"),
        "scoring_offload": changed(ppo, "copies", "reference", offload="weights"),
        "zero_sizes": relaid(ppo, "critic", pipeline_parallel_size=2, data_parallel_size=4),
        "one_layout": relaid(ppo, "critic", context_parallel_size=2, data_parallel_size=4),
        "one_stage": relaid(ppo, "critic", sharding="gradient"),
        "zero_recompute": changed(ppo, "calls", "critic.train", recompute="selective"),
        "one_micro_batch": changed(ppo, "calls", "critic.train", micro_batch_size=8),
        "one_recompute": changed(ppo, "calls", "critic.train", recompute="none"),
        "adapters": lora,
        "reference_model": free.model_copy(
            update={"spec": free.spec.model_copy(update={"models": models})}
        ),
        "optimizer": respecified(free, "workload", optimizer="sgd"),
        "old_log_probs": respecified(free, "workload", old_log_probs="rollout"),
        "engine_sequences": regenerated(free, tensor_parallel_size=4, data_parallel_size=2),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=4),
        "engine_experts": regenerated(grpo, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=2),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(
            respecified(respecified(apart, "search", target="any"), "cluster", pools=pools),
            "copies",
            "actor.shadow",
            pool="b",
        ),
        "whole_nodes": relaid(two, "critic", data_parallel_size=4),
        "staleness_together": respecified(grpo, "search", staleness=1),
        "barrier": respecified(free, "search", iteration_barrier=False),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "continuous": respecified(free, "search", continuous_rollouts=True),
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
        "padded_context": relaid(
            padded, "actor", "reference", context_parallel_size=2, data_parallel_size=4
        ),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            free, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(ahead, "copies", "actor", host_bytes=300 * GIB),
    }


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it(plans: dict[str, Plan]) -> None:
    assert_every_limit_refuses(OPENRLHF, broken(), plans)


@pytest.mark.parametrize(
    ("name", "copy", "first", "refused"),
    [
        ("ppo, a reward model, in two groups", "reward", 0, True),
        ("ppo, a reward model, together", "reward", 8, True),
        ("each apart", "reference", 0, False),
        ("ahead", "reward", 16, True),
    ],
)
def test_who_may_share_depends_on_where_rollouts_are(
    name: str, copy: str, first: int, *, refused: bool
) -> None:
    plan = plan_of(SAMPLE[name])
    nodes = respecified(
        plan,
        "cluster",
        pools=[p.model_copy(update={"num_nodes": 8}) for p in plan.spec.cluster.pools],  # type: ignore[union-attr]
    )
    moved = changed(nodes, "copies", copy, first_gpu=first)
    assert ("forms" in limits_of(moved, OPENRLHF)) == refused


@pytest.mark.slow
def test_a_plan_on_one_gpu_has_a_stage() -> None:
    plan = plan_of(Laid(SMALL, sharding="gradient"))
    assert given(export(plan, OPENRLHF.target))["--ds.zero_stage"] == "2"
    assert (
        given(export(plan_of(SAMPLE["reward model ahead"]), OPENRLHF.target))["--ds.zero_stage"]
        == "1"
    )
