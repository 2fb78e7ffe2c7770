"""The launch of a plan for TRL: complete, typed, explained, and each limit seen to refuse."""

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
from tests.helpers.trl_plans import SAMPLE, SMALL, TRL, Laid, given, plan_of

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *importlib.metadata*) echo "$INSTALLED" ;;
  *) printf '%s\\0' "${0##*/}" "GPUS=${CUDA_VISIBLE_DEVICES:-}" "$@" END >> "$RECORD" ;;
esac
case "$0" in  # as the trainer waits for its server, which ends with the script
  *accelerate) until grep -qa "${AWAITED:-}" "$RECORD"; do sleep 0.05; done ;;
esac
"""


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


@pytest.fixture(scope="module")
def launches(plans: dict[str, Plan]) -> dict[str, Launch]:
    return {name: export(plan, TRL.target, spare_cache=False) for name, plan in plans.items()}


def started(launch: Launch, folder: Path, **values: str) -> tuple[int, str, dict[str, list[str]]]:
    """(exit code, errors, program → its words) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("accelerate", "vllm", "python3"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    for name, text in {"launch.sh": launch.script, **launch.files}.items():
        (folder / name).write_text(text, encoding="utf-8")
    filled = {each.variable: each.variable.lower() for each in launch.placeholders}
    filled |= {"HEAD_ADDRESS": "node", "NODE_RANK": "0", "INSTALLED": "1.16.0"} | values
    done = subprocess.run(
        ["bash", str(folder / "launch.sh")],
        env={"PATH": f"{tools}:{os.defpath}", "RECORD": str(record)} | filled,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls, words = dict[str, list[str]](), list[str]()
    for word in record.read_text(encoding="utf-8").split("\0")[:-1]:
        if word == "END":
            calls[words[0]] = words[1:]
            words = []
        else:
            words.append(word)
    return done.returncode, done.stderr, calls


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in TRL.settings for key in setting.keys.values()}
    written = {key for launch in launches.values() for key in given(launch)}
    only_read = {"--steps_per_generation", "--reward_model_name_or_path"}
    assert described - written == only_read


def test_the_files_have_every_setting_that_is_not_asked_for(launches: dict[str, Launch]) -> None:
    for launch in launches.values():
        assert set(launch.files) == {"accelerate.yaml", "trainer.yaml"}
        accelerate = yaml.safe_load(launch.files["accelerate.yaml"])
        trainer = yaml.safe_load(launch.files["trainer.yaml"])
        flat = {
            f"{name}.{key}" if isinstance(value, dict) else name: each
            for name, value in accelerate.items()
            for key, each in (value.items() if isinstance(value, dict) else [("", value)])
        }
        for each in launch.settings:
            if each.placeholder or each.key.startswith("vllm-serve.") or each.value == "None":
                continue
            own = each.key.startswith("--")
            found = trainer[each.key[2:]] if own else flat[each.key.removeprefix("accelerate.")]
            assert str(found) == each.value, each.key
            assert each.because


def test_one_node_starts_accelerate_with_what_is_asked_for(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, calls = started(launches["grpo"], tmp_path, REWARD_FUNCTIONS="a.b c.d")
    assert code == 0, errors
    words = calls["accelerate"]
    assert words[:4] == ["GPUS=", "launch", "--config_file", f"{tmp_path}/accelerate.yaml"]
    assert words[words.index("-m") + 1] == "trl.scripts.grpo"
    at = words.index("--reward_funcs")
    assert words[at + 1 : at + 4] == ["a.b", "c.d", "--dataset_name"]
    assert words[words.index("--model_name_or_path") + 1] == "actor_model"


def test_a_server_on_the_node_has_its_own_gpus(launches: dict[str, Launch], tmp_path: Path) -> None:
    code, errors, calls = started(launches["server on the node"], tmp_path, AWAITED="vllm")
    assert code == 0, errors
    assert calls["accelerate"][0] == "GPUS=0,1,2,3"
    assert calls["vllm"][:3] == ["GPUS=4,5,6,7", "serve", "actor_model"]
    words = calls["vllm"]
    assert words[words.index("--kv-cache-memory-bytes") + 1] == str(16 * GIB)
    assert words[words.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'


def test_several_nodes_train_and_the_last_one_serves(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    launch = launches["server on a node"]
    for rank in ("0", "1"):
        _, _, calls = started(launch, tmp_path, NODE_RANK=rank)
        assert set(calls) == {"accelerate"}
        words = calls["accelerate"]
        assert words[words.index("--machine_rank") + 1] == rank
        assert words[words.index("--main_process_ip") + 1] == "node"
        assert words[words.index("--vllm_server_host") + 1] == "server_address"
        assert words[words.index("-m") + 1] == "trl.scripts.rloo"
    _, _, calls = started(launch, tmp_path, NODE_RANK="2")
    assert set(calls) == {"vllm"}


def test_what_shards_is_fsdp_only_without_a_reference(launches: dict[str, Launch]) -> None:
    fsdp = given(launches["grpo without divergence"])
    assert fsdp["accelerate.distributed_type"] == "FSDP"
    assert fsdp["accelerate.fsdp_config.fsdp_version"] == "2"
    beside = given(launches["grpo"])
    assert beside["accelerate.distributed_type"] == "DEEPSPEED"
    assert beside["accelerate.deepspeed_config.zero_stage"] == "3"
    assert given(launches["rloo"])["accelerate.deepspeed_config.zero_stage"] == "1"
    assert given(launches["one GPU"])["accelerate.deepspeed_config.zero_stage"] == "2"


def test_what_a_run_needs_beside_the_plan_is_as_in_trls_own_files(
    launches: dict[str, Launch],
) -> None:
    """Else pdsh is started from every node, and all layers are gathered as one unit."""

    def section(name: str, key: str) -> dict[str, object]:
        found: dict[str, object] = yaml.safe_load(launches[name].files["accelerate.yaml"])[key]
        return found

    several = section("server on a node", "deepspeed_config")
    assert several["deepspeed_multinode_launcher"] == "standard"
    assert (several["zero3_init_flag"], several["zero3_save_16bit_model"]) == (True, True)
    assert "zero3_init_flag" not in section("rloo", "deepspeed_config")
    wrapped = section("grpo without divergence", "fsdp_config")
    assert wrapped["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert wrapped["fsdp_state_dict_type"] == "FULL_STATE_DICT"


def test_units_are_trls(launches: dict[str, Launch]) -> None:
    found = given(launches["checkpoints"])
    # 256 prompts with 4 responses in 2 updates, 100 times, on 8 GPUs with 4 at once.
    assert found["--generation_batch_size"] == "1024"
    assert found["--per_device_train_batch_size"] == "4"
    assert found["--gradient_accumulation_steps"] == "16"
    assert (found["--max_steps"], found["--save_steps"]) == ("200", "20")
    assert given(launches["one GPU"])["--num_iterations"] == "2"
    assert given(launches["one GPU"])["--max_steps"] == "400"
    assert given(launches["grpo"])["--save_strategy"] == "no"
    assert "--loss_type" not in given(launches["rloo"])


def test_the_share_of_memory_is_the_sum_shown(launches: dict[str, Launch]) -> None:
    for name, key in (
        ("grpo", "--vllm_gpu_memory_utilization"),
        ("server on a node", "vllm-serve.gpu-memory-utilization"),
    ):
        [share] = [each for each in launches[name].settings if each.key == key]
        words = share.because.replace(",", "").split()
        other, cache, memory = (int(word) for word in words if word.isdecimal())
        assert other > 1.4e9 * 2 / SAMPLE[name].tensor
        assert float(share.value) == pytest.approx((other + cache) / memory, abs=1e-4)


def test_what_is_missing_starts_nothing(launches: dict[str, Launch], tmp_path: Path) -> None:
    for values, told in (
        ({"ACTOR_MODEL": "FILL_IN"}, "to be filled in: ACTOR_MODEL"),
        ({"INSTALLED": "1.15.0"}, "1.15.0 is installed"),
        ({"FOLDER": str(tmp_path / "none")}, "put accelerate.yaml into"),
    ):
        code, errors, calls = started(launches["grpo"], tmp_path, **values)
        assert (code, calls) == (2, {})
        assert told in errors


def test_a_path_is_no_second_argument(launches: dict[str, Launch], tmp_path: Path) -> None:
    path = "--beta $(touch owned) 'a b'"
    _, _, calls = started(launches["grpo"], tmp_path, PROMPT_DATA=path)
    words = calls["accelerate"]
    assert words[words.index("--dataset_name") + 1] == path
    assert not (tmp_path / "owned").exists()


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, apart = plan_of(SAMPLE["grpo"]), plan_of(SAMPLE["server on a node"])
    node = plan_of(SAMPLE["server on the node"])
    smaller = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-7b"})
    models = {**grpo.spec.models, "reference": smaller}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    pools = [pool, pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})]
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    free = respecified(grpo, "search", target="any")
    away = respecified(apart, "search", target="any")
    return {
        "algorithm": free.model_copy(update={"spec": free.spec.model_copy(update=own)}),
        "reward_model": plan_of_any(Wanted(engine="fsdp", reward_model=True)),
        "one_range": changed(node, "copies", "reference", first_gpu=4),
        "overlap": changed(apart, "copies", "actor.shadow", first_gpu=4),
        "offload_optimizer": changed(grpo, "copies", "actor", offload="optimizer"),
        "one_offload": changed(grpo, "copies", "actor", offload="weights"),
        "scoring_offload": changed(grpo, "copies", "reference", offload="weights"),
        "zero_sizes": relaid(grpo, "actor", pipeline_parallel_size=2, data_parallel_size=4),
        "data_only": relaid(grpo, "actor", tensor_parallel_size=2, data_parallel_size=4),
        "one_stage": relaid(grpo, "reference", sharding="none"),
        "zero_recompute": changed(grpo, "calls", "actor.train", recompute="selective"),
        "one_batch_size": changed(grpo, "calls", "actor.train", micro_batch_size=8),
        "one_micro_batch": changed(grpo, "calls", "reference.forward", micro_batch_size=8),
        "micro_batches": changed(grpo, "calls", "actor.train", micro_batch_size=3),
        "packed": respecified(free, "workload", packed_sequences=True),
        "kl_place": respecified(free, "workload", kl="reward"),
        "turns": respecified(free, "workload", turns=2),
        "staleness_apart": respecified(
            respecified(node, "search", target="any"), "search", staleness=1
        ),
        "one_server": changed(apart, "copies", "actor.shadow", num_gpus=16),
        "adapters": plan_of_any(Wanted(engine="fsdp", lora=8)),
        "reference_model": free.model_copy(
            update={"spec": free.spec.model_copy(update={"models": models})}
        ),
        "optimizer": respecified(free, "workload", optimizer="sgd"),
        "old_log_probs": respecified(free, "workload", old_log_probs="rollout"),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=4),
        "engine_experts": regenerated(grpo, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=2),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(
            respecified(away, "cluster", pools=pools), "copies", "actor.shadow", pool="b"
        ),
        "whole_nodes": changed(apart, "copies", "actor", num_gpus=12),
        "staleness_together": respecified(free, "search", staleness=1),
        "barrier": respecified(free, "search", iteration_barrier=False),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "continuous": respecified(free, "search", continuous_rollouts=True),
        "host_optimizer": respecified(free, "workload", optimizer_cpu_offload=True),
        "precision": respecified(free, "workload", rollout_precision="fp8"),
        "cache_precision": respecified(free, "workload", rollout_cache_precision="fp8"),
        "engine_bytes": respecified(free, "workload", rollout_engine="sglang"),
        "optimizer_steps": respecified(free, "workload", updates_per_epoch=3),
        "ranks_divide": respecified(
            free, "workload", prompts_per_iteration=260, updates_per_epoch=260
        ),
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            free, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(grpo, "copies", "actor", host_bytes=300 * GIB),
    }


def test_every_limit_refuses_the_plan_that_breaks_it(plans: dict[str, Plan]) -> None:
    assert_every_limit_refuses(TRL, broken(), plans)


def test_a_mixture_is_served_by_one_replica() -> None:
    plan = plan_of(Laid(SMALL, trainer=8, server=8, tensor=4))
    actor = plan.spec.models["actor"].model_copy(update={"architecture": "qwen3-30b-a3b"})
    free = respecified(plan, "search", target="any")
    models = {**plan.spec.models, "actor": actor, "reference": actor}
    mixture = free.model_copy(update={"spec": free.spec.model_copy(update={"models": models})})
    assert "one_server" in limits_of(mixture, TRL)
