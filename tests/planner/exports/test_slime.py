"""The launch of a plan for slime: complete, typed, explained, and nothing misspelt."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automap.planner import Launch, NotExportableError, Plan
from automap.planner.errors import InfeasibleError
from automap.planner.exports.arguments import argument
from automap.planner.exports.exporting import export
from automap.planner.exports.slime.script import GROUPS
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
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.slime_plans import MISC, SAMPLE, SGLANG, SLIME, faults, given, product

_TOOL = """#!/usr/bin/env bash
case "$0 $*" in
  *config.json*) exec "$PYTHON" "$@" ;;
  *cluster_resources*) echo 1000000 ;;
  */ray*) printf '%s\\0' "$@" END >> "$RECORD" ;;
esac
"""


CONFIG = {"rope_theta": 1000000.0, "rms_norm_eps": 1e-06}
OF_CONFIG = {"--rotary-base", "--norm-epsilon", "--rotary-percent"}
"""Arguments of models with plain attention that the script reads from their config.json."""


def submitted(
    launch: Launch, folder: Path, *, config: dict[str, Any] | None = None, **values: str
) -> tuple[int, str, list[str]]:
    """(exit code, errors, words after slime's program) of a script that is run with recorders."""
    tools, record = folder / "tools", folder / "record"
    tools.mkdir(exist_ok=True)
    for name in ("ray", "python3"):
        (tools / name).write_text(_TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    record.write_text("", encoding="utf-8")
    script = folder / "launch.sh"
    script.write_text(launch.script, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})), encoding="utf-8")
    filled = {each.variable: "x" for each in launch.placeholders} | {"ACTOR_MODEL": str(folder)}
    filled |= {"KL_COEFFICIENT": "0.01", "SLIME_FOLDER": str(folder), "SLIME_VERSION": "0.3.1"}
    filled |= {"HEAD_ADDRESS": "node", "NODE_RANK": "0"} | values
    environment = {"PATH": f"{tools}:{os.defpath}", "RECORD": str(record)}
    environment["PYTHON"] = sys.executable
    done = subprocess.run(
        ["bash", str(script)],
        env=environment | filled,
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


@pytest.fixture(scope="module")
def launches() -> dict[str, Launch]:
    return {name: export(plan_of(wanted), SLIME.target) for name, wanted in SAMPLE.items()}


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: dict[str, Launch]) -> None:
    described = {key for setting in SLIME.settings for key in setting.keys.values()}
    written = {key for launch in launches.values() for key in given(launch)}
    # Models with latent or shared experts, and what is only read, are not among the plans.
    missing = described - written - OF_CONFIG
    only_read = {
        "--micro-batch-size",
        "--num-epoch",
        "--num-steps-per-rollout",
        "--num-layers-per-virtual-pipeline-stage",
        "--rm-type",
        "--sglang-enable-dp-attention",
    }
    models = {s.key() for s in SLIME.settings if s.decision.startswith(("model_", "config_"))}
    assert missing - models == only_read - {"--sglang-enable-dp-attention"}


@pytest.mark.parametrize("name", SAMPLE)
def test_what_is_submitted_is_known_typed_and_consistent(
    name: str, launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches[name], tmp_path)
    assert code == 0, errors
    assert words[0] == ("train_async.py" if name == "ahead" else "train.py")
    assert faults(words[1:]) == []
    keys = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert keys == given(launches[name]).keys() | OF_CONFIG | MISC.keys()


def test_what_is_broken_is_refused(launches: dict[str, Launch], tmp_path: Path) -> None:
    _, _, words = submitted(launches["grpo"], tmp_path)
    good = words[1:]
    assert faults(good) == []
    place = {word.partition("=")[0]: number for number, word in enumerate(good)}

    def but(key: str, value: str) -> list[str]:
        number = place[key] + 1
        return [*good[:number], value, *good[number + 1 :]]

    assert faults([*good, "--rollout-batchsize", "3"])
    assert faults([*good, "--colocate"])
    assert faults(but("--tensor-model-parallel-size", "two"))
    assert faults(but("--tensor-model-parallel-size", "3"))
    assert faults(but("--global-batch-size", "1000"))
    assert faults(but("--rollout-num-gpus-per-engine", "5"))
    assert faults(but("--sglang-mem-fraction-static", "1.2"))
    assert faults([word for word in good if word != "--offload-train"])
    assert faults([*good, "--use-dynamic-batch-size"])


def plans(wanted: dict[str, Wanted]) -> dict[str, Plan]:
    found = {}
    for name, each in wanted.items():
        try:
            found[name] = plan_of(each)
        except InfeasibleError:
            continue
    return found


def words_of(launch: Launch) -> list[str]:
    """The arguments as the settings have them, without a shell between."""
    words = []
    for key, value in given(launch).items():
        number = next(s.type for s in SLIME.settings if key in s.keys.values()) == "number"
        value = "0.01" if number and value.isupper() else value
        words += [key] if value == "True" else [key, value]
    return words


@pytest.mark.slow
def test_a_part_of_the_product_is_known_typed_and_consistent() -> None:
    wanted = dict(list(product(("grpo", "ppo")).items())[::8])
    made = plans(wanted)
    assert len(made) >= 6
    wrong = {name: faults(words_of(export(plan, SLIME.target))) for name, plan in made.items()}
    assert {name: each for name, each in wrong.items() if each} == {}


@pytest.mark.slow
def test_the_whole_product_is_known_typed_and_consistent() -> None:
    made = plans(product())
    assert len(made) >= 100
    wrong = {name: faults(words_of(export(plan, SLIME.target))) for name, plan in made.items()}
    assert {name: each for name, each in wrong.items() if each} == {}


def test_each_argument_follows_its_decision_in_its_group(launches: dict[str, Launch]) -> None:
    for launch in launches.values():
        lines = launch.script.splitlines()
        for group in GROUPS:
            start = lines.index(f"{group}=(")
            assert lines[start + 1].startswith("  # "), group
            for setting in SLIME.settings:
                key = setting.key() if "job" in setting.keys else next(iter(setting.keys.values()))
                if setting.group == group and key in given(launch):
                    written = lines[start : lines.index(")", start)]
                    assert any(line.split("=")[0].split()[:1] == [key] for line in written), key


def test_units_are_slimes(launches: dict[str, Launch]) -> None:
    found = given(launches["grpo"])
    # 256 prompts with 4 responses in 2 updates; 4 engines of 4 GPUs.
    assert found["--rollout-batch-size"] == "256"
    assert found["--global-batch-size"] == "512"
    assert found["--sglang-max-running-requests"] == str(1024 // 4)
    assert "--colocate" in found
    apart = given(launches["apart"])
    assert (apart["--actor-num-nodes"], apart["--rollout-num-gpus"]) == ("1", "8")
    assert not {"--colocate", "--offload-train"} & apart.keys()
    assert given(launches["dapo"])["--over-sampling-batch-size"] == "512"
    uneven = given(launches["uneven stages"])
    assert uneven["--decoder-first-pipeline-num-layers"] == "9"
    assert given(launches["critic, tokens"])["--use-dynamic-batch-size"] == "True"


def test_the_share_of_memory_is_the_sum_shown(launches: dict[str, Launch]) -> None:
    for name in ("grpo", "apart"):
        [share] = [e for e in launches[name].settings if e.key == "--sglang-mem-fraction-static"]
        words = share.because.replace(",", "").split()
        weights, cache, memory = (int(word) for word in words if word.isdecimal())
        assert weights > 0
        assert float(share.value) == pytest.approx((weights + cache) / memory, abs=1e-4)


def test_a_script_with_placeholders_left_or_another_version_starts_nothing(
    launches: dict[str, Launch], tmp_path: Path
) -> None:
    code, errors, words = submitted(launches["grpo"], tmp_path, ACTOR_MODEL="FILL_IN")
    assert (code, words) == (2, [])
    assert "to be filled in: ACTOR_MODEL" in errors
    code, errors, words = submitted(launches["grpo"], tmp_path, SLIME_VERSION="v0.3.0")
    assert (code, words) == (2, [])
    assert "v0.3.0 is installed" in errors


def test_a_path_is_no_second_argument(launches: dict[str, Launch], tmp_path: Path) -> None:
    path = "--lr $(touch owned) 'a b'"
    _, _, words = submitted(launches["grpo"], tmp_path, PROMPT_DATA=path)
    assert f"--prompt-data={path}" in words
    assert not (tmp_path / "owned").exists()


def broken() -> dict[str, Plan]:
    """Limit → a plan that breaks it."""
    grpo, ppo = plan_of(SAMPLE["ppo"].but(algorithm="grpo")), plan_of(SAMPLE["ppo"])
    apart = plan_of(SAMPLE["apart"])
    mixture = plan_of(SAMPLE["mixture"])
    fsdp = plan_of(Wanted(engine="fsdp", workload=SGLANG))
    lora = plan_of(Wanted(engine="fsdp", lora=8, workload=SGLANG))
    served = plan_of(Wanted(reward_model=True, workload=SGLANG))
    smaller = grpo.spec.models["actor"].model_copy(update={"architecture": "qwen2.5-1.5b"})
    models = {**grpo.spec.models, "reference": smaller}
    calls = [{"id": c.id, "role": c.role, "kind": c.kind} for c in grpo.calls]
    own = {"algorithm": None, "dataflow": DataflowSpec.model_validate({"calls": calls})}
    [pool] = apart.spec.cluster.pools  # type: ignore[union-attr]
    two = respecified(
        apart,
        "cluster",
        pools=[pool, pool.model_copy(update={"name": "b", "gpu": "a100-80gb-sxm"})],
    )
    generate = next(call for call in grpo.calls if call.kind == "generate")
    second = generate.model_copy(update={"id": "again", "kv_cache_bytes": GIB})
    tail = GenerationTail(num_gpus=4, ended_share=0.5)
    gated = smaller.model_copy(update={"architecture": "qwen3-next-80b-a3b"})
    return {
        "architecture": grpo.model_copy(
            update={"spec": grpo.spec.model_copy(update={"models": {**models, "actor": gated}})}
        ),
        "algorithm": grpo.model_copy(update={"spec": grpo.spec.model_copy(update=own)}),
        "one_range": changed(ppo, "copies", "critic", first_gpu=8),
        "one_layout": relaid(grpo, "reference", tensor_parallel_size=2, data_parallel_size=8),
        "adapters": lora,
        "reference_model": grpo.model_copy(
            update={"spec": grpo.spec.model_copy(update={"models": models})}
        ),
        "reference_host": changed(grpo, "copies", "reference", offload="none"),
        "one_engine": fsdp,
        "megatron_sharding": relaid(grpo, "actor", sharding="none"),
        "stages": changed(grpo, "copies", "actor", layers_per_stage=[7, 6, 8, 7]),
        "offload_optimizer": changed(apart, "copies", "actor", offload="optimizer"),
        "offload_to_generate": changed(grpo, "copies", "actor", offload="none"),
        "offload_critic": changed(ppo, "copies", "critic", offload="none"),
        "one_micro_batch": changed(grpo, "calls", "reference.forward", micro_batch_size=8),
        "one_recompute": changed(ppo, "calls", "critic.train", recompute="full"),
        "engine_pipeline": regenerated(grpo, pipeline_parallel_size=2, data_parallel_size=2),
        "engine_experts": regenerated(mixture, expert_parallel_size=2),
        "engines_divide": regenerated(grpo, tensor_parallel_size=3, data_parallel_size=5),
        "tensor_in_node": regenerated(grpo, tensor_parallel_size=16, data_parallel_size=1),
        "generate_alike": grpo.model_copy(update={"calls": [*grpo.calls, second]}),
        "one_gpu_type": changed(two, "copies", "actor.shadow", pool="b"),
        "whole_nodes": relaid(grpo, "actor", "reference", data_parallel_size=3),
        "overlap": changed(apart, "copies", "actor.shadow", first_gpu=4),
        "staleness_together": respecified(grpo, "search", staleness=1),
        "staleness": respecified(apart, "search", staleness=2),
        "barrier": respecified(grpo, "search", iteration_barrier=False),
        "epochs": respecified(grpo, "workload", epochs=2),
        "streams": changed(grpo, "calls", "actor.generate", tail=tail),
        "continuous": respecified(grpo, "search", continuous_rollouts=True),
        "pretrain": respecified(ppo, "workload", pretrain_loss=True),
        "precision": respecified(grpo, "workload", rollout_precision="fp8"),
        "cache_precision": respecified(grpo, "workload", rollout_cache_precision="fp8"),
        "engine_bytes": respecified(grpo, "workload", rollout_engine="vllm"),
        "optimizer_steps": respecified(grpo, "workload", updates_per_epoch=3),
        "ranks_divide": respecified(
            ppo, "workload", prompts_per_iteration=260, updates_per_epoch=52
        ),
        "padded": respecified(grpo, "workload", packed_sequences=False),
        "reward_model": served,
        "cache_free": changed(grpo, "calls", "actor.generate", kv_cache_bytes=80 * GIB),
        "positions": respecified(
            grpo, "workload", response_length=LengthSpec(mean=512, max=200_000)
        ),
        "host_memory": changed(grpo, "copies", "reference", host_bytes=300 * GIB),
    }


@pytest.mark.slow
def test_every_limit_refuses_the_plan_that_breaks_it() -> None:
    assert_every_limit_refuses(SLIME, broken())


def test_an_export_raises_the_reasons() -> None:
    with pytest.raises(NotExportableError, match="rollouts more than one iteration old"):
        export(plan_of(SAMPLE["ahead"].but(staleness=2)), SLIME.target)


def test_values_have_the_type_of_their_argument() -> None:
    size = SLIME.setting("tensor_parallel_size")
    assert argument(4, size) == "4"
    with pytest.raises(ValueError, match="no whole"):
        argument("4", size)
    with pytest.raises(ValueError, match="no flag"):
        argument(1, SLIME.setting("colocated"))
