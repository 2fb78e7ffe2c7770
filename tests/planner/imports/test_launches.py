"""What launches of verl say: their units and defaults, and what is asked for or noted."""

from collections.abc import Mapping
from typing import Any

import pytest

from automap.planner.errors import InfeasibleError, NotImportableError, SpecError
from automap.planner.exports.launch import LaunchSetting
from automap.planner.imports.importing import hazards, import_launch, line_changes
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.planning import estimate
from automap.planner.spec import LengthSpec

TARGET = "verl@0.9.1"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
BASE = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": "256",
    "data.max_prompt_length": "512",
    "data.max_response_length": "1024",
    "actor_rollout_ref.model.path": "Qwen/Qwen2-7B-Instruct",
    f"{ACTOR}.ppo_mini_batch_size": "64",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "4",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "8",
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.n": "4",
    "trainer.nnodes": "2",
}
LENGTHS = {
    "prompt_length": LengthSpec(mean=200.0, max=512),
    "response_length": LengthSpec(mean=300.0, max=1024),
}


def script_of(settings: Mapping[str, str]) -> str:
    lines = " \\\n  ".join(f"'{key}={value}'" for key, value in settings.items())
    return f"python3 -m verl.trainer.main_ppo \\\n  {lines}\n"


def read(*files: LaunchFile, **answers: Any) -> Imported:
    return import_launch(files, TARGET, Answers(**({"gpu": "h100"} | LENGTHS | answers)))


def read_script(text: str, **answers: Any) -> Imported:
    return read(LaunchFile("launch.sh", text), **answers)


def read_base(*removed: str, **changed: str) -> Imported:
    settings = {key: value for key, value in (BASE | changed).items() if key not in removed}
    return read_script(script_of(settings))


def refused(*files: LaunchFile, **answers: Any) -> list[str]:
    with pytest.raises(NotImportableError) as caught:
        read(*files, **answers)
    return [f"{each.summary} ({each.remedy})" for each in caught.value.reasons]


def told(imported: Imported, kind: str) -> list[str]:
    return [f"{each.line}: {each.text}" for each in imported.remarks if each.kind == kind]


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_adapters_are_read_with_both_engines(engine: str) -> None:
    lora = {"actor_rollout_ref.model.lora_rank": "32", "actor_rollout_ref.model.lora.rank": "32"}
    changed = {f"{ACTOR}.strategy": engine} | lora
    if engine == "megatron":
        changed |= {"model_engine": "megatron"}
    [actor] = [model for role, model in read_base(**changed).spec.models.items() if role == "actor"]
    assert actor.lora is not None
    assert actor.lora.rank == 32


def test_units_and_defaults_are_verls() -> None:
    found = read_base()
    workload = found.spec.workload
    assert (workload.prompts_per_iteration, workload.responses_per_prompt) == (256, 4)
    assert (workload.updates_per_epoch, workload.epochs, workload.kl) == (4, 1, "none")
    assert set(found.spec.models) == {"actor", "reward"}
    [actor] = found.placement.copies
    # verl's defaults: FSDP over all GPUs, resharded after each layer, nothing offloaded.
    assert (actor.num_gpus, actor.layout.sharding, actor.offload) == (16, "full", "none")
    calls = {call.id: call for call in found.placement.calls}
    assert calls["actor.train"].recompute == "full"
    assert calls["actor.train"].micro_batch_size == 4
    assert calls["actor.forward"].micro_batch_size == 8
    generated = calls["actor.generate"].parallelism
    assert generated is not None
    assert (generated.tensor_parallel_size, generated.data_parallel_size) == (2, 8)
    # Half of a GPU less the engine's own bytes.
    assert 20 * 2**30 < found.cache_bytes < 40 * 2**30


def test_everything_that_is_missing_is_asked_for_at_once() -> None:
    text = script_of(BASE | {"actor_rollout_ref.model.path": "mine/model"}).replace(
        "'trainer.nnodes=2'", "trainer.nnodes=$NODES"
    )
    asked = refused(LaunchFile("launch.sh", text), prompt_length=None, response_length=None)
    assert len(asked) == 4
    for option in ("--set NODES=", "--model actor=", "--lengths", "--prompt-lengths"):
        assert any(option in each for each in asked)
    with_it = read_script(text, values={"NODES": "1"}, models={"actor": "qwen2.5-3b"})
    assert with_it.spec.models["actor"].architecture == "qwen2.5-3b"
    assert with_it.placement.copies[0].num_gpus == 8


@pytest.mark.parametrize(
    ("key", "silent", "told"),
    [
        (f"{ACTOR}.entropy_coeff", ("0", "0.0", "null"), "0.001"),
        (f"{ACTOR}.calculate_entropy", ("False",), "True"),
        ("trainer.balance_batch", ("True",), "False"),
    ],
)
def test_what_is_off_or_as_usual_takes_nothing(
    key: str, silent: tuple[str, ...], told: str
) -> None:
    for value in silent:
        remarks = read_script(script_of(BASE | {key: value})).remarks
        assert [each for each in remarks if key in each.text] == []
    remarks = read_script(script_of(BASE | {key: told})).remarks
    assert [each.kind for each in remarks if key in each.text] == ["not priced"]


def test_with_adapters_the_reference_has_no_engine() -> None:
    key = "actor_rollout_ref.ref.fsdp_config"
    settings = BASE | {
        "actor_rollout_ref.model.lora_rank": "32",
        f"{ACTOR}.use_kl_loss": "True",
        f"{key}.param_offload": "True",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "8",
    }
    told = [each.text for each in read_script(script_of(settings)).remarks if key in each.text]
    assert told == [
        f"{key}.param_offload has no effect: with LoRA the reference is the actor without its "
        "adapters"
    ]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"algorithm.nonsense": "1"}, "does not fit", "algorithm.nonsense is no key"),
        ({"+algorithm.nonsense": "1"}, "unknown key", "algorithm.nonsense"),
        ({f"{ACTOR}.ppo_epoch": "2"}, "does not fit", f"did you mean {ACTOR}.ppo_epochs?"),
        ({f"{ACTOR}.megatron.grad_offload": "1"}, "without effect", "of the other engine"),
        ({f"{ACTOR}.fsdp_config.grad_offload": "1"}, "does not fit", "of an earlier version"),
        (
            {"critic.model.fsdp_config.param_offload": "1"},
            "does not fit",
            "critic.fsdp.param_offload",
        ),
        ({"reward_model.enable": "False"}, "replaced", "reward.reward_model.enable"),
        (
            {"reward_model.micro_batch_size_per_gpu": "8"},
            "does not fit",
            "is of an earlier version, with no place in verl@0.9.1, and does not start",
        ),
        ({"reward_model.reward_loop_source": "x"}, "replaced", "reward.reward_manager.source"),
        ({"reward_model.model.trust_remote_code": "True"}, "without effect", "an engine serves"),
        ({"critic.ppo_max_token_len_per_gpu": "9"}, "without effect", "ppo_infer_max_token"),
        ({f"{ROLLOUT}.enforce_eager": "True"}, "not priced", "CUDA graphs"),
        ({f"{ACTOR}.fsdp_config.fsdp_size": "8"}, "assumed", "sharded over all 16"),
        ({f"{ACTOR}.fsdp_config.param_offload": "True"}, "assumed", "without the optimizer's"),
        ({"critic.enable": "True"}, "contradiction", "no critic"),
        ({f"{ACTOR}.ppo_mini_batch_size": "100"}, "contradiction", "do not divide"),
        ({f"{ROLLOUT}.log_prob_use_dynamic_bsz": "True"}, "contradiction", "differ"),
        ({"algorithm.adv_estimator": "gpg"}, "assumed", "priced as it"),
        ({f"{ROLLOUT}.max_num_seqs": "64"}, "assumed", "an engine runs 64 of the 128"),
        ({"trainer.v1.trainer_mode": "colocate_async"}, "assumed", "priced as sync"),
        ({f"{ROLLOUT}.gpu_memory_utilization": "0.05"}, "does not fit", "longest sequence needs"),
    ],
)
def test_what_is_to_know_of_a_setting_is_noted_with_its_line(
    change: dict[str, str], kind: str, words: str
) -> None:
    settings = BASE | change
    found = read_script(script_of(settings))
    [key] = change
    line = list(settings).index(key) + 2
    noted = [each for each in told(found, kind) if words in each]
    assert len(noted) == 1
    assert noted[0].startswith(f"{line}: ")


def test_settings_that_decide_nothing_are_kept_without_a_word() -> None:
    found = read_script(script_of(BASE | {f"{ACTOR}.optim.lr": "1e-6", "data.shuffle": "False"}))
    assert [each.value for each in found.settings if not each.decides] == ["1e-6", "False"]
    assert {each.kind for each in found.remarks} == {"assumed", "not priced"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm.adv_estimator": "nonsense"}, "known: gae, grpo"),
        ({"model_engine": "veomni"}, "known: dp, megatron"),
        ({f"{ACTOR}.strategy": "zero3"}, "known: fsdp, fsdp2"),
        ({"trainer.nnodes": "many"}, "no whole number"),
        ({"trainer.nnodes": "0"}, "the trainer has no GPUs"),
        ({"trainer.nnodes": "1,2"}, "sweep"),
        ({"trainer.nnodes": "${oc.env:NODES,1,2}"}, "sweep"),
        ({"trainer.nnodes": "[" * 900 + "]" * 900}, "lists inside one another"),
        ({f"{ROLLOUT}.tensor_model_parallel_size": "3"}, "leaves 1 idle"),
        ({f"{ROLLOUT}.expert_parallel_size": "3"}, "verl takes 1 or 2"),
        ({f"{ACTOR}.ulysses_sequence_parallel_size": "3"}, "does not divide 16"),
        ({f"{ACTOR}.ppo_mini_batch_size": "512"}, "more than the batch"),
        ({"trainer.v1.trainer_mode": "separate_async"}, "actor_rollout_ref.rollout.nnodes is 0"),
        ({"data.train_batch_size": "1000000000000"}, "prompts_per_iteration"),
        ({f"{ACTOR}.use_dynamic_bsz": "perhaps"}, "neither True nor False"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, str], words: str) -> None:
    found = refused(LaunchFile("launch.sh", script_of(BASE | change)))
    assert any(words in each for each in found), found


def test_a_key_that_comes_twice_counts_as_it_comes_last() -> None:
    found = read_script(script_of(BASE) + "").spec.workload.responses_per_prompt
    assert found == 4
    twice = read_script(script_of(BASE).rstrip("\n") + f" {ROLLOUT}.n=8\n")
    assert twice.spec.workload.responses_per_prompt == 8
    assert [each[:3] for each in told(twice, "contradiction")] == ["12:"]


def test_a_key_can_be_taken_away_and_given_from_outside() -> None:
    text = script_of(BASE).rstrip("\n") + " ~trainer.nnodes\n"
    assert read_script(text).placement.copies[0].num_gpus == 8
    given = read_script(text, values={"trainer.nnodes": "4"})
    assert given.placement.copies[0].num_gpus == 32


def test_the_critics_own_numbers_count() -> None:
    critic = {"algorithm.adv_estimator": "gae", "critic.model.path": "Qwen/Qwen2.5-1.5B"}
    stated = critic | {"critic.ppo_micro_batch_size_per_gpu": "2"}
    found = read_script(script_of(BASE | stated))
    assert any(
        "critic.ppo_micro_batch_size_per_gpu" in each for each in told(found, "without effect")
    )
    sizes = {call.id: call.micro_batch_size for call in found.placement.calls}
    # 32768 tokens of sequences of 500 on average, the longest 1536.
    assert sizes["critic.train"] == sizes["critic.forward"] or sizes["critic.train"] == 16
    fixed = stated | {
        "+critic.fsdp.use_dynamic_bsz": "False",
        "+critic.fsdp.micro_batch_size_per_gpu": "2",
        "+critic.fsdp.infer_micro_batch_size_per_gpu": "4",
    }
    found = read_script(script_of(BASE | fixed))
    sizes = {call.id: call.micro_batch_size for call in found.placement.calls}
    assert (sizes["critic.train"], sizes["critic.forward"]) == (2, 4)
    assert told(found, "without effect") == []


@pytest.mark.parametrize(
    ("key", "value"), [("critic.ppo_epochs", "3"), ("critic.ppo_mini_batch_size", "32")]
)
def test_a_critic_that_is_updated_otherwise_is_noted(key: str, value: str) -> None:
    critic = {"algorithm.adv_estimator": "gae", "critic.model.path": "Qwen/Qwen2.5-1.5B"}
    found = read_script(script_of(BASE | critic))
    assert not any("critic.ppo" in each for each in told(found, "not priced"))
    found = read_script(script_of(BASE | critic | {key: value}))
    [noted] = [each for each in told(found, "not priced") if "critic.ppo" in each]
    assert f"{key} is {value}" in noted
    assert not noted.startswith("0:")


def test_megatron_has_one_layout_that_of_the_engine_built_first() -> None:
    sizes = {
        "model_engine": "megatron",
        "algorithm.adv_estimator": "gae",
        "critic.model.path": "Qwen/Qwen2.5-7B",
        f"{ACTOR}.megatron.tensor_model_parallel_size": "4",
        "critic.megatron.tensor_model_parallel_size": "2",
    }
    found = read_script(script_of(BASE | sizes))
    layouts = {copy.id: copy.layout.tensor_parallel_size for copy in found.placement.copies}
    assert layouts == {"actor": 2, "critic": 2}
    assert any("is built first" in each for each in told(found, "contradiction"))


def test_token_budgets_are_the_sequences_that_they_hold() -> None:
    budget = {f"{ACTOR}.use_dynamic_bsz": "True", f"{ACTOR}.ppo_max_token_len_per_gpu": "6144"}
    found = read_script(script_of(BASE | budget))
    sizes = {call.id: call.micro_batch_size for call in found.placement.calls}
    # One of 1536 and 500 each of the others.
    assert 4 <= (sizes["actor.train"] or 0) <= 10
    small = budget | {f"{ACTOR}.ppo_max_token_len_per_gpu": "1000"}
    found = read_script(script_of(BASE | small))
    assert any("longest sequence 1536" in each for each in told(found, "contradiction"))
    assert {call.micro_batch_size for call in found.placement.calls if call.kind == "train"} == {1}


def test_a_launch_that_does_not_fit_says_where() -> None:
    found = read_script(script_of(BASE | {"actor_rollout_ref.model.path": "Qwen/Qwen2.5-72B"}))
    with pytest.raises(InfeasibleError) as caught:
        estimate(found.spec, found.placement)
    assert "actor.train" in {reason.phase for reason in caught.value.reasons}


def test_what_verl_accepts_and_goes_wrong_is_a_hazard() -> None:
    greedy = {f"{ROLLOUT}.gpu_memory_utilization": "0.95", f"{ROLLOUT}.max_num_seqs": "16"}
    found = read_script(script_of(BASE | greedy))
    [reason] = hazards(found, estimate(found.spec, found.placement))
    assert "when the engine starts" in reason.summary
    found = read_script(script_of(BASE))
    assert hazards(found, estimate(found.spec, found.placement)) == []


def test_a_reward_models_engine_computes_so_many_tokens_and_takes_its_share() -> None:
    served = {
        "reward.reward_model.enable": "True",
        "reward.reward_model.model_path": "Qwen/Qwen2.5-7B",
        "reward.reward_model.rollout.name": "vllm",
    }
    sizes = set[int | None]()
    for sequences in ("64", "1024"):
        number = {"reward.reward_model.rollout.max_num_seqs": sequences}
        found = read_script(script_of(BASE | served | number))
        calls = {call.id: call for call in found.placement.calls}
        sizes.add(calls["reward.forward"].micro_batch_size)
    assert len(sizes) == 1
    for share, number in (("0.3", 0), ("0.95", 1)):
        taken = {"reward.reward_model.rollout.gpu_memory_utilization": share}
        found = read_script(script_of(BASE | served | taken))
        reasons = hazards(found, estimate(found.spec, found.placement))
        assert len([each for each in reasons if "when it is served" in each.summary]) == number


def test_pools_lie_behind_one_another_and_begin_nodes() -> None:
    apart = {
        "trainer.v1.trainer_mode": "separate_async",
        "actor_rollout_ref.hybrid_engine": "False",
        "trainer.nnodes": "1",
        f"{ROLLOUT}.nnodes": "1",
    }
    for trained, generated, expected in ((4, 4, (4, 1)), (4, 8, (8, 2)), (8, 8, (8, 2))):
        sizes = {
            "trainer.n_gpus_per_node": str(trained),
            f"{ROLLOUT}.n_gpus_per_node": str(generated),
        }
        found = read_script(script_of(BASE | apart | sizes))
        shadow = next(copy for copy in found.placement.copies if copy.kind == "shadow")
        assert not isinstance(found.spec.cluster, str)
        assert (shadow.first_gpu, found.spec.cluster.pools[0].num_nodes) == expected
        assert found.spec.search.staleness == 1
    several = apart | {"trainer.nnodes": "2", "trainer.n_gpus_per_node": "4"}
    found_reasons = refused(
        LaunchFile("launch.sh", script_of(BASE | several | {f"{ROLLOUT}.n_gpus_per_node": "8"}))
    )
    assert any("different numbers of GPUs on a node" in each for each in found_reasons)


def test_a_key_with_hydras_plus_counts() -> None:
    key = f"{ROLLOUT}.gpu_memory_utilization"
    found = read_script(script_of(BASE), values={f"+{key}": "0.3"})
    assert found.values[key] == 0.3


@pytest.mark.parametrize("size", ["3", "4096"])
def test_verl_refuses_what_leaves_a_remainder(size: str) -> None:
    key = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    found = read_script(script_of(BASE | {key: size}))
    assert any(f"{key} is {size}, which does not divide" in e for e in told(found, "does not fit"))


def test_a_remainder_is_told_in_whole_sequences_of_the_launchs_own_mini_batch() -> None:
    changes = {f"{ACTOR}.ppo_mini_batch_size": "27", f"{ACTOR}.ppo_micro_batch_size_per_gpu": "4"}
    found = read_script(script_of(BASE | changes))
    [line] = [each for each in told(found, "does not fit") if "micro_batch" in each]
    size = 27 * found.spec.workload.responses_per_prompt
    assert line.endswith(f"is 4, and {size} sequences are no multiple of 16 data ranks × 4")


def test_what_does_not_divide_a_ranks_sequences_is_noted() -> None:
    found = read_script(script_of(BASE | {f"{ACTOR}.ppo_micro_batch_size_per_gpu": "3"}))
    assert any(
        "which does not divide the 16 sequences" in each for each in told(found, "does not fit")
    )


CONFIG: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"train_batch_size": 256, "max_prompt_length": 512, "max_response_length": 1024},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen2.5-7B"},
        "actor": {"ppo_mini_batch_size": 64, "ppo_micro_batch_size_per_gpu": 4},
        "rollout": {
            "name": "vllm",
            "n": 4,
            "log_prob_micro_batch_size_per_gpu": "${actor_rollout_ref.actor.ppo_epochs}",
        },
    },
}


def config(name: str, *parents: str, **keys: Any) -> LaunchFile:
    return LaunchFile(f"{name}.yaml", document={"defaults": [*parents, "_self_"], **keys})


def test_configurations_inherit_among_the_files_that_are_named() -> None:
    base = config("base", "ppo_trainer", **CONFIG)
    own = config("own", "base", trainer={"nnodes": 4}, data={"train_batch_size": 512})
    script = LaunchFile(
        "launch.sh", "python3 -m verl.trainer.main_ppo --config-name own trainer.nnodes=2"
    )
    found = read(script, own, base)
    assert found.spec.workload.prompts_per_iteration == 512
    assert found.placement.copies[0].num_gpus == 16
    # verl's default of the key that another one follows.
    assert {call.id: call.micro_batch_size for call in found.placement.calls}["actor.forward"] == 1
    alone = read(own, base)
    assert alone.placement.copies[0].num_gpus == 32
    assert any("'base'" in each for each in refused(script, own))
    assert any("'own'" in each for each in refused(script))


def test_configurations_in_a_circle_are_named() -> None:
    found = refused(config("one", "other", **CONFIG), config("other", "one"))
    assert any("inherit in a circle: one -> other -> one" in each for each in found)
    loops = config("loops", "ppo_trainer", **CONFIG, trainer={"nnodes": "${trainer.nnodes}"})
    assert any("trainer.nnodes" in each for each in refused(loops))


def test_configurations_that_inherit_again_and_again_end_soon() -> None:
    files = [config(f"c{i}", *[f"c{i + 1}"] * 50) for i in range(9)]
    found = refused(*files, config("c9", "ppo_trainer", **CONFIG))
    assert any("more than 200 configurations" in each for each in found)


def test_of_several_jobs_one_is_asked_for() -> None:
    two = script_of(BASE) + script_of(BASE | {f"{ROLLOUT}.n": "16"})
    [reason] = refused(LaunchFile("launch.sh", two))
    assert "2 jobs" in reason
    assert "--job 1 to 2" in reason
    assert read_script(two, job=2).spec.workload.responses_per_prompt == 16
    assert "--job" in refused(LaunchFile("launch.sh", two), job=3)[0]


def test_other_trainers_are_not_read() -> None:
    other = "python3 -m recipe.spin.main_spin trainer.nnodes=1\n"
    assert any("recipe.spin.main_spin" in each for each in refused(LaunchFile("launch.sh", other)))
    assert any("no command starts" in each for each in refused(LaunchFile("launch.sh", "ls\n")))


def test_unknown_gpus_and_targets_are_refused() -> None:
    with pytest.raises(SpecError, match="no GPU type"):
        read_script(script_of(BASE), gpu="h1000")
    with pytest.raises(SpecError, match="unknown target"):
        import_launch([], "verl@9", Answers(gpu="h100"))


def test_a_model_of_no_role_and_a_mean_above_the_longest_are_asked_about() -> None:
    launch = LaunchFile("launch.sh", script_of(BASE))
    asked = refused(launch, models={"actr": "qwen3-8b"})
    assert any("--model actr: the launch has no such model" in each for each in asked)
    fields = dict.fromkeys(LengthSpec.model_fields) | {"mean": 3000.0}
    lengths = LengthSpec.model_construct(None, **fields)
    asked = refused(launch, response_length=lengths)
    assert any("above the launch's longest of 1024 tokens" in each for each in asked)


def test_a_folder_of_the_hubs_cache_names_its_model() -> None:
    folder = "/models/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a3545"
    found = read_script(script_of({**BASE, "actor_rollout_ref.model.path": folder}))
    assert found.spec.models["actor"].architecture == "qwen2.5-7b"


def test_a_key_that_is_given_wins_over_its_earlier_name_in_the_file() -> None:
    old, new = "reward_model.nnodes", "reward.reward_model.nnodes"
    found = read_script(script_of(BASE | {old: "1"}), values={new: "2"})
    assert found.values[new] == 2
    assert [each.value for each in found.settings if each.key == new] == ["2"]


def test_values_are_what_verl_reads_for_every_key_given_or_left_out() -> None:
    values = read_base(**{f"{ACTOR}.use_dynamic_bsz": "True"}).values
    assert values["trainer.nnodes"] == 2
    assert values["trainer.n_gpus_per_node"] == 8
    # What is left out follows the actor's.
    assert values["actor_rollout_ref.ref.log_prob_use_dynamic_bsz"] is True
    assert values[f"{ROLLOUT}.log_prob_max_token_len_per_gpu"] == 16384
    assert "values" not in read_base().model_dump()


@pytest.mark.parametrize(("scored", "lines"), [("32768", 1), ("16384", 2)])
def test_a_key_that_follows_another_needs_a_line_only_where_it_differs(
    scored: str, lines: int
) -> None:
    found = read_base(**{f"{ACTOR}.use_dynamic_bsz": "True"})
    budgets = {
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": scored,
        f"{ACTOR}.ppo_max_token_len_per_gpu": "32768",
    }
    wanted = [LaunchSetting(key=key, value=value, because="") for key, value in budgets.items()]
    changes = line_changes(found, wanted)
    assert [each.key for each in changes] == [*reversed(budgets)][:lines]
    assert {each.before for each in changes} == {None}


WRONG = {
    "trainer.nnodes": ("0", "1.5", "many", "99999999"),
    f"{ACTOR}.ppo_mini_batch_size": ("1024", "-1"),
    f"{ACTOR}.ulysses_sequence_parallel_size": ("3",),
    f"{ACTOR}.strategy": ("zero3",),
    f"{ACTOR}.use_dynamic_bsz": ("maybe",),
    f"{ROLLOUT}.tensor_model_parallel_size": ("3",),
    f"{ROLLOUT}.expert_parallel_size": ("5",),
    f"{ROLLOUT}.pipeline_model_parallel_size": ("2",),
    f"{ROLLOUT}.gpu_memory_utilization": ("1.5",),
    f"{ROLLOUT}.name": ("hf",),
    "algorithm.adv_estimator": ("magic",),
    "model_engine": ("veomni",),
    "actor_rollout_ref.model.path": ("nobody/nothing",),
    "data.train_batch_size": ("[1,2", "1,2"),
    "trainer.v1.trainer_mode": ("other", "separate_async"),
}


@pytest.mark.parametrize("key", WRONG)
def test_every_refusal_has_its_key_its_line_and_what_would_be_valid(key: str) -> None:
    for value in WRONG[key]:
        launch = LaunchFile("launch.sh", script_of(BASE | {key: value}))
        line = list(BASE | {key: value}).index(key) + 2
        with pytest.raises(NotImportableError) as caught:
            read(launch)
        assert all(each.remedy for each in caught.value.reasons), caught.value.reasons
        summaries = [each.summary for each in caught.value.reasons]
        assert any(key in each and f"line {line}" in each for each in summaries), summaries


def test_megatron_sizes_that_do_not_divide_are_named_with_their_lines() -> None:
    size = f"{ACTOR}.megatron.tensor_model_parallel_size"
    launch = script_of(BASE | {"model_engine": "megatron", size: "3"})
    [asked] = refused(LaunchFile("launch.sh", launch))
    assert f"{size} (line {len(BASE) + 3})" in asked
    assert "sizes whose product divides 16" in asked
