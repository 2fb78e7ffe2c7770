"""The launch of a plan for AReaL: complete, typed, explained, and each limit seen to refuse."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from automap.planner import Launch, Plan
from automap.planner.exports.exporting import export
from automap.planner.plan.types import GenerationTail
from automap.planner.spec import DataflowSpec, LengthSpec
from automap.planner.units import GIB
from tests.helpers.areal_plans import AREAL, FORMS, PPO, SAMPLE, SMALL, Laid, given, plan_of
from tests.helpers.broken_exports import (
    assert_every_limit_refuses,
    changed,
    regenerated,
    relaid,
    respecified,
)
from tests.helpers.framework_plans import Wanted
from tests.helpers.framework_plans import plan_of as plan_of_any

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *importlib.metadata*) echo "$INSTALLED" ;;
  *cluster_resources*) echo 1000000 ;;
  */ray*) ;;
  *) printf '%s\\0' "$@" >> "$RECORD"; env | grep -E "^(ACTOR_MODEL|PASSES)=" >> "$RECORD" ;;
esac
"""


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


@pytest.fixture(scope="module")
def launches(plans: dict[str, Plan]) -> dict[str, Launch]:
    return {name: export(plan, AREAL.target, spare_cache=False) for name, plan in plans.items()}


def started(launch: Launch, folder: Path, **values: str) -> tuple[int, str, str]:
    """(exit code, errors, what was started) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("ray", "python3"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    (folder / "launch.sh").write_text(launch.script, encoding="utf-8")
    for name, text in launch.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    filled = {each.variable: "x" for each in launch.placeholders}
    filled |= {"INSTALLED": "1.0.4", "HEAD_ADDRESS": "node", "NODE_RANK": "0"} | values
    done = subprocess.run(
        ["bash", "launch.sh"],
        env={"PATH": f"{tools}:{os.defpath}", "RECORD": str(record)} | filled,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr, record.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in AREAL.settings for key in setting.keys.values()}
    written = {key for launch in launches.values() for key in given(launch)}
    only_read = {"actor.adv_norm.group_size", "rollout.scheduling_strategy.target"}
    assert described - written == only_read


def test_the_configuration_has_the_settings(launches: dict[str, Launch]) -> None:
    for launch in launches.values():
        document = yaml.safe_load(launch.files["areal.yaml"])
        for each in launch.settings:
            node = document
            for part in each.key.split("."):
                node = node[part]
            if each.placeholder:
                assert f"${{oc.env:{each.value}}}" in node
            else:
                assert node == yaml.safe_load(each.value), each.key


def test_the_script_starts_the_program_with_it(launches: dict[str, Launch], tmp_path: Path) -> None:
    code, errors, record = started(launches["grpo"], tmp_path, TRAIN_PROGRAM="my train.py")
    assert code == 0, errors
    assert record.split("\0")[:3] == ["my train.py", "--config", "./areal.yaml"]
    assert "ACTOR_MODEL=x" in record
    assert "PASSES=x" in record
    code, errors, record = started(launches["grpo"], tmp_path, PASSES="FILL_IN")
    assert (code, record) == (2, "")
    assert "to be filled in: PASSES" in errors
    code, errors, record = started(launches["grpo"], tmp_path, INSTALLED="0.5.0")
    assert (code, record) == (2, "")
    assert "0.5.0 is installed" in errors
    code, errors, record = started(launches["grpo"], tmp_path, CONFIG="other.yaml")
    assert (code, record) == (2, "")


@pytest.mark.parametrize("name", FORMS)
def test_models_join_the_first_that_has_their_gpus(name: str) -> None:
    found = given(export(plan_of(Laid(PPO, name)), AREAL.target))
    sharing = {
        role: found[f"{role}.scheduling_strategy.target"] for role in ("actor", "critic", "ref")
    }
    assert (
        sharing
        == {
            "together": {"actor": "null", "critic": "actor", "ref": "actor"},
            "critic apart": {"actor": "null", "critic": "null", "ref": "actor"},
            "reference beside the critic": {"actor": "null", "critic": "null", "ref": "critic"},
            "each apart": {"actor": "null", "critic": "null", "ref": "null"},
        }[name]
    )
    assert found["rollout.scheduling_strategy.type"] == "separation"


def test_backends_are_engines_and_sizes(launches: dict[str, Launch]) -> None:
    backends = {
        name: given(launch)["actor.backend"].strip('"') for name, launch in launches.items()
    }
    assert backends["grpo"] == "megatron:d4t2"
    assert backends["ppo, each apart"] == "fsdp:d2t2c2"
    assert backends["ahead"] == "megatron:d2p2t2"
    # Of 16 GPUs, experts on 8 of which each rank has whole ones.
    assert backends["mixture"] == "megatron:(attn:d8t2|ffn:d2e8)"
    assert given(launches["ahead"])["actor.megatron.virtual_pipeline_parallel_size"] == "2"
    assert given(launches["ppo, critic apart"])["critic.backend"].strip('"') == "fsdp:d4t2"


def test_units_are_areals(launches: dict[str, Launch]) -> None:
    found = given(launches["ahead"])
    # 256 prompts with 4 responses in 2 updates.
    assert found["train_dataset.batch_size"] == found["rollout.consumer_batch_size"] == "256"
    assert (found["gconfig.n_samples"], found["actor.ppo_n_minibatches"]) == ("4", "2")
    assert (found["gconfig.max_new_tokens"], found["gconfig.max_tokens"]) == ("1024", "1536")
    # Of 3 batches one is in training; the others are in flight on 4 engines, with room for all.
    assert (found["vllm.max_model_len"], found["vllm.max_num_seqs"]) == ("1536", "512")
    assert found["rollout.max_head_offpolicyness"] == "2"
    assert found["rollout.max_concurrent_rollouts"] == "768"
    assert found["actor.use_decoupled_loss"] == found["actor.recompute_logprob"] == "true"
    rollout = given(launches["log-probabilities of the rollout"])
    assert rollout["actor.use_decoupled_loss"] == rollout["actor.recompute_logprob"] == "false"
    assert given(launches["grpo, fsdp"])["ref.optimizer_dtype"] == "bfloat16"
    assert given(launches["ppo"])["critic.is_critic"] == "true"
    host = given(launches["reference on the host"])
    assert host["ref.offload"] == host["enable_offload"] == "true"


@pytest.mark.parametrize(
    ("name", "key"),
    [("grpo", "vllm.gpu_memory_utilization"), ("sglang", "sglang.mem_fraction_static")],
)
def test_the_share_of_memory_is_the_sum_shown(
    name: str, key: str, launches: dict[str, Launch]
) -> None:
    [share] = [each for each in launches[name].settings if each.key == key]
    words = share.because.replace(",", "").split()
    other, cache, memory = (int(word) for word in words if word.isdecimal())
    # The weights of the actor alone, on two GPUs.
    assert other > 1.4e9
    assert cache == 16 * GIB
    assert float(share.value) == pytest.approx((other + cache) / memory, abs=1e-4)


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, fsdp = plan_of(SAMPLE["grpo"]), plan_of(SAMPLE["grpo, fsdp"])
    ppo, mixture = plan_of(SAMPLE["ppo"]), plan_of(SAMPLE["mixture"])
    free = respecified(grpo, "search", target="any")
    [pool] = free.spec.cluster.pools  # type: ignore[union-attr]
    pools = [pool, pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})]
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    sharded = mixture.copies[0].layout.model_copy(
        update={"expert_parallel_size": 1, "sharding": "full"}
    )
    short = LengthSpec(mean=512, max=200_000)
    return {
        "algorithm": free.model_copy(update={"spec": free.spec.model_copy(update=own)}),
        "together": plan_of_any(SMALL.but(num_nodes=1, tensor=1)),
        "partial_overlap": changed(ppo, "copies", "critic", first_gpu=4),
        "overlap": changed(grpo, "copies", "actor.shadow", first_gpu=4),
        "reward_model": plan_of_any(Wanted(reward_model=True)),
        "kl_place": respecified(free, "workload", kl="loss"),
        "megatron_sharding": relaid(
            changed(ppo, "copies", "critic", engine="megatron"), "critic", sharding="gradient"
        ),
        "equal_stages": relaid(
            grpo, "actor", pipeline_parallel_size=8, data_parallel_size=1, tensor_parallel_size=1
        ),
        "fsdp_sizes": relaid(fsdp, "actor", pipeline_parallel_size=2, data_parallel_size=2),
        "fsdp_experts": changed(mixture, "copies", "actor", engine="fsdp", layout=sharded),
        "fsdp_sharding": relaid(fsdp, "actor", sharding="gradient"),
        "fsdp_recompute": changed(fsdp, "calls", "actor.train", recompute="selective"),
        "offload_training": changed(grpo, "copies", "actor", offload="optimizer"),
        "role_micro_batch": changed(grpo, "calls", "actor.train", micro_batch_size=8),
        "prompts_divide": respecified(grpo, "workload", prompts_per_iteration=258),
        "epochs": respecified(free, "workload", epochs=2),
        "padded": respecified(free, "workload", packed_sequences=False),
        "adapters": plan_of_any(Wanted(engine="fsdp", lora=8)),
        "optimizer": respecified(free, "workload", optimizer="sgd"),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=2),
        "engine_expert_groups": regenerated(grpo, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=2),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(
            respecified(free, "cluster", pools=pools), "copies", "actor.shadow", pool="b"
        ),
        "whole_nodes": relaid(ppo, "critic", data_parallel_size=2),
        "barrier": respecified(free, "search", iteration_barrier=False),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "continuous": respecified(free, "search", staleness=2, continuous_rollouts=False),
        "pretrain": respecified(
            respecified(ppo, "search", target="any"), "workload", pretrain_loss=True
        ),
        "host_optimizer": respecified(free, "workload", optimizer_cpu_offload=True),
        "precision": respecified(free, "workload", rollout_precision="fp8"),
        "cache_precision": respecified(free, "workload", rollout_cache_precision="fp8"),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(free, "workload", response_length=short),
        "host_memory": changed(grpo, "copies", "reference", host_bytes=300 * GIB),
    }


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it(plans: dict[str, Plan]) -> None:
    assert_every_limit_refuses(AREAL, broken(), plans)
