"""Launches of SkyRL: what they say, what is asked for, and exports that are read back."""

import pytest

from automap.planner import export_into
from automap.planner.exports.exporting import export
from automap.planner.exports.skyrl.values import quoted
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.imports.skyrl.values import read_yaml
from automap.planner.imports.values import ValueFormError
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.launch_corpus import FOLDER
from tests.helpers.skyrl_plans import SAMPLE, plan_of
from tests.planner.imports.corpus_reader import Corpus

TARGET = "skyrl@0.3.0"
CORPUS = Corpus(TARGET, FOLDER / "skyrl", ".sh")
LENGTHS = CORPUS.lengths
launch, read, refused = CORPUS.launch, CORPUS.read, CORPUS.refused


@pytest.mark.slow
def test_nine_in_ten_launches_are_imported_without_help_and_all_with_it() -> None:
    unfit = {
        name: each.text
        for name, found in CORPUS.helped().items()
        for each in found.remarks
        if each.kind in ("does not fit", "unknown key")
    }
    assert unfit == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "ppo",
        "ppo, the critic apart",
        "ppo, each apart",
        "ppo, stale",
        "stale, in the loss",
        "megatron, two layouts",
        "optimizer on the host",
        "mixture",
        "tokens",
        "turns",
    ],
)
def test_an_export_is_read_back_and_exported_again_as_it_was(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    before = export(plan, TARGET, spare_cache=False)
    model = plan.spec.models["actor"].architecture
    values = {each.variable: f"/m/{model}" for each in before.placeholders}
    values |= {"NODE_RANK": "0", "HEAD_ADDRESS": "a"}
    workload = plan.spec.workload
    answers = Answers(
        "h100",
        values,
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
    )
    found = import_launch([LaunchFile("a.sh", before.script)], TARGET, answers)
    unsaid = {"checkpoint_seconds": workload.checkpoint_seconds}
    assert found.spec.workload.model_copy(update=unsaid) == workload
    assert found.spec.search.staleness == plan.spec.search.staleness
    ranges = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in plan.placement().copies]
    again = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in found.placement.copies]
    assert sorted(again) == sorted(ranges)
    priced = estimate(found.spec, found.placement)
    assert hazards(found, priced) == []
    after = export(priced, TARGET, spare_cache=False)
    given = [{s.key: s.value for s in each.settings} for each in (before, after)]
    assert given[0] == given[1]


def test_models_are_where_the_switches_put_them() -> None:
    def copies(name: str) -> dict[str, tuple[int, int, str]]:
        found = read(launch(name)).placement.copies
        return {copy.id: (copy.first_gpu, copy.num_gpus, copy.offload) for copy in found}

    assert set(copies("ppo").values()) == {(0, 8, "weights")}
    assert copies("critic-apart") == {
        "actor": (0, 8, "weights"),
        "reference": (0, 8, "weights"),
        "critic": (8, 8, "none"),
        "actor.shadow": (16, 8, "none"),
    }
    apart = copies("every-model-apart")
    assert len(set(apart.values())) == len(apart) == 4
    assert {offload for _, _, offload in apart.values()} == {"none"}
    # On one node, where there is room for all.
    assert copies("fully-async") == {
        "actor": (0, 4, "weights"),
        "reference": (0, 4, "weights"),
        "actor.shadow": (4, 4, "none"),
    }


def test_sizes_are_each_models_own() -> None:
    copies = {copy.id: copy.layout for copy in read(launch("mixture")).placement.copies}
    assert copies["actor"].tensor_parallel_size == 4
    assert copies["actor"].expert_parallel_size == 8
    slurm = {copy.id: copy.layout for copy in read(launch("slurm")).placement.copies}
    assert [slurm[id].pipeline_parallel_size for id in ("actor", "reference")] == [2, 1]
    train = next(c for c in read(launch("slurm")).placement.calls if c.id == "actor.train")
    assert train.recompute == "selective"
    [generate] = [c for c in read(launch("moonlight")).placement.calls if c.kind == "generate"]
    assert generate.parallelism is not None
    assert generate.parallelism.tensor_parallel_size == 8


def test_programs_say_how_far_rollouts_are_ahead() -> None:
    staleness = {
        name: read(launch(name)).spec.search.staleness
        for name in ("gsm8k", "one-step-off", "fully-async", "stale-with-critic")
    }
    assert staleness == {
        "gsm8k": 0,
        "one-step-off": 1,
        "fully-async": 4,
        "stale-with-critic": 2,
    }
    stale = read(launch("fully-async")).spec.workload
    assert (stale.old_log_probs, stale.kl) == ("rollout", "loss")


def test_what_is_left_out_is_skyrls_default() -> None:
    text = "python3 -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen2.5-7B"
    found = read(LaunchFile("a.sh", text))
    workload = found.spec.workload
    assert found.spec.algorithm == "grpo"
    assert (workload.prompts_per_iteration, workload.responses_per_prompt) == (1024, 5)
    assert workload.updates_per_epoch == 4
    assert (workload.kl, workload.checkpoint_every_iterations) == ("loss", 10)
    assert set(found.spec.models) == {"actor", "reference", "reward"}
    train = next(c for c in found.placement.calls if c.id == "actor.train")
    assert (train.micro_batch_size, train.recompute) == (1, "full")
    assert {copy.num_gpus for copy in found.placement.copies} == {1}


def test_turns_end_where_an_engine_takes_no_more() -> None:
    found = read(launch("text-to-sql")).spec.workload
    assert found.turns == 6
    assert found.response_length.max_tokens == 29000 + 3000 - 6000
    extra = "generator.inference_engine.engine_init_kwargs.max_model_len=16000"
    shorter = read(
        launch("text-to-sql", ("generator.max_turns=6", f"generator.max_turns=6 {extra}"))
    )
    assert shorter.spec.workload.response_length.max_tokens == 10000


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("gsm8k", ('estimator="grpo"', 'estimator="ppo"'), "known: gae"),
        ("gsm8k", ("mini_batch_size=256", "mini_batch_size=100"), "does not divide"),
        ("gsm8k", ("num_engines=$NUM_GPUS", "num_engines=3"), "share the actor's 4"),
        ("gsm8k", ("ref_num_gpus_per_node=$NUM_GPUS", "ref_num_gpus_per_node=2"), "in a group of"),
        ("gsm8k", ("strategy=fsdp", "strategy=zero3"), "known: fsdp, fsdp2, megatron"),
        ("gsm8k", ("per_prompt=5", "per_prompt=1"), "more than 1"),
        ("gsm8k", ("train_batch_size=1024", "train_batch_size=many"), "no whole number"),
        ("gsm8k", ("num_engines=$NUM_GPUS", "num_engines=4000000"), "at most 1000000 GPUs"),
        ("gsm8k", ("backend=$INFERENCE_BACKEND", "backend=sglang"), "known: vllm"),
        ("megatron", ("MEGATRON_PP=2", "MEGATRON_PP=3"), "do not divide"),
        ("dapo", ("policy.sequence_parallel_size=4", "policy.sequence_parallel_size=3"), "divide"),
        ("dapo", ("SAMPLING_TYPE=filter", "SAMPLING_TYPE=other"), "known: filter, replace"),
    ],
)
def test_what_cannot_be_is_refused_by_key_and_line(
    name: str, change: tuple[str, str], words: str
) -> None:
    assert any(words in each for each in refused(launch(name, change)))


EPOCHS = "trainer.epochs=20"


@pytest.mark.parametrize(
    ("name", "more", "kind", "words"),
    [
        ("gsm8k", "trainer.train_batchsize=3", "does not fit", "trainer.train_batch_size"),
        ("gsm8k", "+trainer.seed=3", "does not fit", "does not start with a +"),
        ("gsm8k", "generator.num_inference_engines=4", "does not fit", "inference_engine.num_"),
        ("gsm8k", "trainer.use_sample_packing=true", "replaced", "remove_microbatch_padding"),
        ("gsm8k", "trainer.ref.fsdp_config.cpu_offload=true", "saves memory", "loaded once"),
        (
            "gsm8k",
            "trainer.policy.optimizer_config.offload_after_step=false",
            "not priced",
            "as if its optimizer",
        ),
        ("gsm8k", "trainer.policy.fsdp_config.fsdp_size=2", "assumed", "sharded over all 4"),
        ("gsm8k", "generator.max_input_length=1", "does not fit", "with one turn"),
        ("gsm8k", "trainer.algorithm.use_kl_in_reward=true", "does not fit", "both on"),
        ("gsm8k", "trainer.fully_async.enabled=true", "without effect", "no effect"),
        ("gsm8k", "trainer.algorithm.dynamic_sampling.type=replace", "assumed", "cost nothing"),
        ("megatron", "trainer.algorithm.advantage_estimator=gae", "does not fit", "no critic"),
        ("fully-async", "trainer.fully_async.enabled=false", "does not fit", "does not start"),
        ("fully-async", "trainer.algorithm.policy_loss_type=regular", "does not fit", "are kept"),
    ],
)
def test_what_is_odd_is_said(name: str, more: str, kind: str, words: str) -> None:
    if "gae" in more:
        more += " trainer.critic.model.path=Qwen/Qwen3-8B"
        more += " trainer.placement.critic_num_gpus_per_node=8"
    found = read(launch(name, (EPOCHS, f"{EPOCHS} {more}"))).remarks
    assert any(words in each.text for each in found if each.kind == kind), found


def test_updates_of_stale_batches_are_said_to_be_one() -> None:
    change = ("policy_mini_batch_size=${MINI_BATCH_SIZE}", "policy_mini_batch_size=128")
    found = read(launch("fully-async", change)).remarks
    assert any("they are the same" in each.text for each in found if each.kind == "does not fit")


def test_what_is_given_beside_the_files_wins() -> None:
    found = read(launch("gsm8k"), values={"trainer.micro_forward_batch_size_per_gpu": "2"})
    call = next(c for c in found.placement.calls if c.id == "reference.forward")
    assert call.micro_batch_size == 2


def test_a_launch_of_another_framework_or_version_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    [told] = refused(verl)
    assert "which is verl, not skyrl (import it as verl@0.9.1)" in told
    for name in ("gsm8k", "fully-async", "dapo-own-program", "by-file-name"):
        [told] = refused(launch(name), target="verl@0.9.1")
        assert "which is skyrl, not verl (import it as skyrl@0.3.0)" in told
    old = "uv run --extra vllm -m skyrl_train.entrypoints.main_base trainer.seed=1\n"
    [told] = refused(LaunchFile("a.sh", old))
    assert "starts skyrl_train.entrypoints.main_base, of the package before skyrl@0.3.0" in told
    keys = "generator.num_inference_engines=4 generator.backend=vllm trainer.train_batch_size=8"
    [told] = refused(LaunchFile("a.sh", f"python -m skyrl.train.entrypoints.main_base {keys}\n"))
    assert "a.sh line 1 starts an earlier version than 0.3.0: 2 of its keys" in told
    assert "(rename them: generator.num_inference_engines is generator.inference_" in told
    serves = LaunchFile("a.sh", "python -m skyrl.train.entrypoints.serve a.b=1\n")
    assert any("which is not read" in each for each in refused(serves))
    other = LaunchFile("a.sh", "python mine.py a.b=1\n")
    assert any("no command starts skyrl.train.entrypoints" in each for each in refused(other))
    document = LaunchFile("a.yaml", document={"a": 1})
    assert "SkyRL is started by a script alone" in refused(document)[0]


@pytest.mark.slow
def test_a_plan_is_written_into_a_launch_and_the_rest_stays() -> None:
    file = launch("megatron")
    before = read(file)
    plan = estimate(before.spec, before.placement)
    assert export_into(plan, [file], TARGET).text == file.text
    calls = [
        call.model_copy(update={"recompute": "none"}) if call.kind == "train" else call
        for call in before.placement.calls
    ]
    placement = before.placement.model_copy(update={"calls": calls})
    written = export_into(estimate(before.spec, placement), [file], TARGET)
    assert written.added == ["trainer.gradient_checkpointing"]
    again = read(LaunchFile(file.name, written.text))
    assert next(c for c in again.placement.calls if c.kind == "train").recompute == "none"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ("~", None),
        ("None", "None"),
        ("yes", True),
        ("False", False),
        ("1.0e-6", 1e-6),
        ("reinforce++", "reinforce++"),
        ("a,b", "a,b"),
        ("[core_attn, 'a, b']", ["core_attn", "a, b"]),
        ("'it''s'", "it's"),
        ('"a \\" b"', 'a " b'),
        ("'\\${x}'", "${x}"),
        ("[]", []),
    ],
)
def test_values_are_read_as_yaml(text: str, value: object) -> None:
    assert read_yaml(text) == value


@pytest.mark.parametrize("text", ["'a", "[a", "'a' b'", "'"])
def test_quotes_and_brackets_end(text: str) -> None:
    with pytest.raises(ValueFormError):
        read_yaml(text)


@pytest.mark.parametrize("name", ["it's", "a ${b} c", "\\${x}", "[a, b]", "null", ""])
def test_names_are_read_as_they_were_quoted(name: str) -> None:
    assert read_yaml(quoted(name)) == name


@pytest.mark.slow
def test_advice_is_lines_of_the_launch() -> None:
    file = launch("gsm8k")
    advice = advise([file], TARGET, Answers("h100", **LENGTHS), time_limit_seconds=5.0)
    assert any("recomputation" in change.what for change in advice.changes)
    assert all("." in line.key for change in advice.changes for line in change.lines)
    assert advice.together_seconds is not None
    assert advice.iteration_seconds is not None
    assert advice.together_seconds <= advice.iteration_seconds


def test_models_on_the_same_gpus_share_them_however_their_nodes_are_counted() -> None:
    steps = "trainer.max_training_steps=400"
    more = "trainer.placement.ref_num_gpus_per_node=4 trainer.placement.ref_num_nodes=2"
    for each in ("", more):
        found = read(launch("critic-apart", (steps, f"{steps} {each}"))).placement
        shared = {copy.role: copy.offload for copy in found.copies if copy.first_gpu == 0}
        assert shared == {"actor": "weights", "reference": "weights"}, each
