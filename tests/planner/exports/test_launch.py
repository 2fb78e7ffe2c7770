"""The launch of a plan: complete, explained, and without anything that is not decided."""

from pathlib import Path

import pytest

from automap.planner import Launch, catalogue
from automap.planner.exports.exporting import export
from automap.planner.exports.lines import plain
from automap.planner.exports.subject import subject_of
from automap.planner.exports.verl.hydra import hydra_quoted
from automap.planner.exports.verl.settings import launch_of
from automap.planner.frameworks import framework
from automap.planner.job.resolution import resolve
from automap.planner.planning import estimate
from tests.exports.launched import run_script, submitted
from tests.helpers.framework_plans import Wanted, placement_of, plan_of, spec_of

VERL = framework("verl@0.9.1")
TURNS = (("turns", 3), ("environment_seconds_per_turn", 1.0))
FORMS = (
    Wanted(pipeline=3, num_nodes=3),
    Wanted(algorithm="ppo", pipeline=3, num_nodes=3, recompute="selective"),
    Wanted(algorithm="ppo", engine="fsdp", micro_batch=3),
    Wanted(algorithm="ppo", micro_batch=3, recompute="full", workload=TURNS),
    Wanted(algorithm="ppo", model="qwen3-30b-a3b", num_nodes=4, expert=4, generation_expert=4),
    Wanted(apart=True, workload=(("rollout_cache_precision", "fp8"),)),
    Wanted(algorithm="ppo", engine="fsdp", lora=8),
    Wanted(algorithm="ppo", lora=8),
    Wanted(algorithm="ppo", workload=(("optimizer_cpu_offload", True),)),
    Wanted(algorithm="dapo", reward_model=True, reward_nodes=1, num_nodes=3),
)


@pytest.fixture(scope="module")
def launches() -> list[Launch]:
    return [export(plan_of(wanted), VERL.target, spare_cache=False) for wanted in FORMS]


def values(launch: Launch) -> dict[str, str]:
    found = {each.key: each.value for each in launch.settings}
    assert len(found) == len(launch.settings)
    return found


@pytest.mark.slow
def test_every_setting_of_the_description_is_set_by_some_plan(launches: list[Launch]) -> None:
    described = {key for setting in VERL.settings for key in setting.keys.values()}
    written = {key for launch in launches for key in values(launch)}
    # No plan has a coefficient, and the framework has one of its own.
    only_read = {"algorithm.kl_ctrl.kl_coef", "actor_rollout_ref.actor.kl_loss_coef"}
    assert described - written == only_read
    assert written <= described


def test_adapters_under_megatron_sit_on_the_layers_that_the_model_has(
    launches: list[Launch],
) -> None:
    key = "actor_rollout_ref.model.lora.target_modules"
    (plain,) = (values(each)[key] for each in launches if key in values(each))
    assert plain == "[linear_qkv,linear_proj,linear_fc1,linear_fc2]"
    wanted = Wanted(model="deepseek-v2-lite", lora=8, expert=4, generation_expert=4)
    latent = values(export(plan_of(wanted), VERL.target))
    assert "linear_qkv" not in latent[key]
    assert {"linear_q_proj", "linear_kv_down_proj"} <= set(latent[key].strip("[]").split(","))
    assert latent["actor_rollout_ref.model.lora.rank"] == "8"


def test_engines_read_the_base_of_adapters_and_are_sent_these_alone(
    launches: list[Launch],
) -> None:
    """Without it each rank of FSDP gathers the whole base on its host, in 32 bits."""
    rollout = "actor_rollout_ref.rollout"
    for wanted, launch in zip(FORMS, launches, strict=True):
        found, needed = values(launch), wanted.engine == "fsdp" and wanted.lora
        assert found.get(f"{rollout}.load_format") == ("safetensors" if needed else None)
        assert found.get(f"{rollout}.layered_summon") == ("True" if needed else None)


def test_every_setting_has_its_decision_before_it(launches: list[Launch]) -> None:
    for launch in launches:
        lines = launch.script.partition("settings=(\n")[2].partition("\n)\n")[0].splitlines()
        assert lines[0].startswith("  # ")
        comments = {line.strip()[2:] for line in lines if line.startswith("  #")}
        assert len([line for line in lines if not line.startswith("  #")]) == len(launch.settings)
        assert all(each.because[:60] in " ".join(comments) for each in launch.settings)


def test_units_are_verls(launches: list[Launch]) -> None:
    found = values(launches[0])
    # 256 prompts with 4 responses in 2 updates; 6 engines of 4 GPUs.
    assert found["data.train_batch_size"] == "256"
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == "128"
    assert found["actor_rollout_ref.rollout.max_num_seqs"] == str(-(-1024 // 6))
    assert found["+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"] == str(
        16 * 2**30
    )


def test_what_does_not_divide_becomes_tokens_of_at_least_the_longest(
    launches: list[Launch],
) -> None:
    found = values(launches[2])
    assert found["actor_rollout_ref.actor.use_dynamic_bsz"] == "True"
    budget = int(found["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"])
    assert 512 + 1024 <= budget <= 3 * (512 + 1024)


def test_generation_apart_says_its_staleness() -> None:
    for staleness in (0, 2):
        plan = plan_of(Wanted(apart=True, staleness=staleness, continuous=staleness > 0))
        found = values(export(plan, VERL.target))
        assert found["trainer.v1.trainer_mode"] == "separate_async"
        assert found["trainer.v1.separate_async.num_warmup_batches"] == str(staleness)
        assert found["trainer.v1.sampler.max_off_policy_threshold"] == str(staleness + 1)
        assert found["trainer.v1.separate_async.parameter_sync_step"] == "2"


def test_a_part_of_a_node_is_all_that_ray_is_given(tmp_path: Path) -> None:
    wanted = Wanted(num_nodes=1, tensor=2, generation_tensor=2)
    spec = spec_of(wanted)
    placed = placement_of(wanted, spec)
    half = [
        copy.model_copy(
            update={
                "num_gpus": 4,
                "layout": copy.layout.model_copy(update={"data_parallel_size": 2}),
            }
        )
        for copy in placed.copies
    ]
    calls = [
        call.model_copy(
            update={"parallelism": call.parallelism.model_copy(update={"data_parallel_size": 2})}
        )
        if call.parallelism
        else call
        for call in placed.calls
    ]
    plan = estimate(spec, placed.model_copy(update={"copies": half, "calls": calls}))
    launch = export(plan, VERL.target)
    assert (launch.num_nodes, launch.gpus_per_node) == (1, 4)
    assert values(launch)["trainer.n_gpus_per_node"] == "4"
    assert "export CUDA_VISIBLE_DEVICES=0,1,2,3\n" in launch.script
    assert submitted(launch, tmp_path)


def test_a_script_with_placeholders_left_starts_nothing(
    launches: list[Launch], tmp_path: Path
) -> None:
    launch = launches[0]
    done, calls = run_script(launch, tmp_path, ACTOR_MODEL="/models/a", NODE_RANK="0")
    assert (done.returncode, calls) == (2, [])
    assert "REWARD_FUNCTION TRAIN_FILES VALIDATION_FILES HEAD_ADDRESS" in done.stderr
    assert "ACTOR_MODEL" not in done.stderr


def test_another_version_starts_nothing(launches: list[Launch], tmp_path: Path) -> None:
    given = {each.variable: "x" for each in launches[0].placeholders}
    given |= {"HEAD_ADDRESS": "node", "NODE_RANK": "0"}
    done, calls = run_script(launches[0], tmp_path, version="0.9.0", **given)
    assert (done.returncode, calls) == (2, [])
    assert "0.9.0 is installed" in done.stderr


def test_the_head_waits_and_submits_and_others_join(launches: list[Launch], tmp_path: Path) -> None:
    given = {each.variable: "x" for each in launches[0].placeholders} | {"HEAD_ADDRESS": "node"}
    _, head = run_script(launches[0], tmp_path, NODE_RANK="0", **given)
    assert [call[:2] for call in head] == [["start", "--head"], ["job", "submit"], ["stop"]]
    _, other = run_script(launches[0], tmp_path, SLURM_NODEID="2", **given)
    assert [call[0] for call in other] == ["health-check", "start"]
    assert "--address=node:6379" in other[1]


def test_comments_hold_what_people_named() -> None:
    plan = plan_of(Wanted()).model_copy(update={"name": "a\ntouch owned\r\x1b[0m"})
    script = launch_of(subject_of(resolve(plan.spec), plan, VERL)).script
    assert not any(line.startswith("touch") for line in script.splitlines())
    assert "\x1b" not in script


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "True"),
        (3, "3"),
        (0.25, "0.25"),
        (["a", "b"], "[a,b]"),
        ("a_1", "a_1"),
    ],
)
def test_values_are_hydras(value: object, text: str) -> None:
    assert plain(value) == text  # type: ignore[arg-type]


def test_words_that_need_quotes_are_refused_or_quoted() -> None:
    with pytest.raises(ValueError, match="needs quotes"):
        plain("a b")
    assert hydra_quoted("it's \\") == "'it\\'s \\\\'"
    assert hydra_quoted("${a}") == "'\\${a}'"


def test_a_served_reward_model_has_room_for_its_longest_sequences(launches: list[Launch]) -> None:
    found = values(launches[-1])
    assert found["reward.reward_model.rollout.max_model_len"] == str(512 + 1024 + 256)
    plan = plan_of(FORMS[-1])
    call = next(call for call in plan.calls if call.id == "reward.forward")
    # 28 layers, 4 key-value heads of 128 on 4 GPUs, keys and values, two bytes; 2 sequences.
    cache = 28 * 1 * 128 * 2 * 2 * 2 * (512 + 1024 + 256)
    memory = catalogue.gpu_type("h100-80gb-sxm").memory_bytes
    share = float(found["reward.reward_model.rollout.gpu_memory_utilization"])
    [reward] = [copy for copy in plan.copies if copy.id == "reward"]
    expected = reward.resident_bytes + call.bytes_by_kind.total + cache
    assert share == pytest.approx(expected / memory, abs=1e-4)


@pytest.mark.parametrize("stack", [None, "fsdp"])
def test_a_plan_that_names_no_engines_has_those_of_its_software_or_layout(
    stack: str | None,
) -> None:
    plan = plan_of(Wanted(engine="fsdp", workload=(("training_stack", stack),)))
    copies = [copy.model_copy(update={"engine": None}) for copy in plan.copies]
    older = plan.model_copy(update={"copies": copies})
    launch = launch_of(subject_of(resolve(plan.spec), older, VERL))
    assert launch.settings == export(plan, VERL.target, spare_cache=False).settings
