"""Launches of TRL: what they say, what is asked for, and exports that are read back."""

from typing import Any

import pytest

from automap.planner import export_into
from automap.planner.exports.exporting import export
from automap.planner.exports.launch import Launch
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.launch_corpus import FOLDER
from tests.helpers.trl_plans import SAMPLE, plan_of
from tests.planner.imports.corpus_reader import Corpus, document

TARGET = "trl@1.16.0"
CORPUS = Corpus(TARGET, FOLDER / "trl")
LENGTHS = CORPUS.lengths
launch, read, refused = CORPUS.launch, CORPUS.read, CORPUS.refused


def files_of(launch: Launch) -> list[LaunchFile]:
    configs = [document(text, name) for name, text in launch.files.items()]
    return [LaunchFile("launch.sh", launch.script), *configs]


@pytest.mark.slow
def test_nine_in_ten_launches_are_imported_without_help_and_all_with_it() -> None:
    CORPUS.helped()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SAMPLE if name != "checkpoints"])
def test_an_export_is_read_back_and_exported_again_as_it_was(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    before = export(plan, TARGET, spare_cache=False)
    values = {each.variable: "/m/Qwen2.5-1.5B" for each in before.placeholders}
    values |= {"KL_COEFFICIENT": "0.01", "NODE_RANK": "0", "HEAD_ADDRESS": "a"}
    workload = plan.spec.workload
    lengths: dict[str, Any] = {
        "prompt_length": workload.prompt_length,
        "response_length": workload.response_length,
    }
    found = import_launch(files_of(before), TARGET, Answers("h100", values, **lengths))
    assert found.spec.workload == workload
    ranges = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in plan.placement().copies]
    again = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in found.placement.copies]
    assert again == ranges
    kinds = {"unknown key", "does not fit", "contradiction", "replaced"}
    assert [each for each in found.remarks if each.kind in kinds] == []
    priced = estimate(found.spec, found.placement)
    assert hazards(found, priced) == []
    after = export(priced, TARGET, spare_cache=False)
    given = [{s.key: s.value for s in each.settings} for each in (before, after)]
    shares = [
        float(each.pop(key))
        for each in given
        for key in list(each)
        if key.endswith(("memory_utilization", "memory-utilization"))
    ]
    assert shares[0] == pytest.approx(shares[1], abs=2e-4)
    assert given[0] == given[1]


def test_every_way_to_start_it_says_how_many_gpus_train() -> None:
    def gpus(*names: str) -> tuple[int, str]:
        found = read(*map(launch, names))
        actor = found.placement.copies[0]
        return actor.num_gpus, actor.layout.sharding

    program = "train_grpo.py"
    assert gpus("recipe.sh", "zero3-config.yaml", "recipe-math.yaml") == (8, "full")
    assert gpus("recipe-override.sh", "zero3-config.yaml", "recipe-math.yaml")[0] == 4
    assert gpus("cli-config.sh", "recipe-small.yaml") == (4, "gradient")
    assert gpus("cli.sh") == gpus("cli-rloo.sh") == (8, "full")
    assert gpus("one-gpu.sh", program) == (1, "none")
    assert gpus("torchrun-two-nodes.sh", program) == (16, "gradient")
    assert gpus("python-program-two.sh", program, "fsdp-config.yaml") == (16, "full")
    assert gpus("server-program.sh", "train_rloo.py") == (4, "none")


def test_a_program_says_its_plain_values() -> None:
    program = launch("train_grpo.py")
    found = read(launch("python-program.sh"), program, launch("zero3-config.yaml"))
    workload = found.spec.workload
    assert found.spec.models["actor"].architecture == "qwen2.5-3b"
    assert workload.response_length.max == 2048
    assert (workload.prompts_per_iteration, workload.responses_per_prompt) == (32, 8)
    assert workload.kl == "loss"
    [setting] = [each for each in found.settings if each.key == "--beta"]
    assert (setting.file, program.text.splitlines()[setting.line - 1].strip()) == (
        "train_grpo.py",
        "beta=0.04,",
    )
    worked_out = launch("train_grpo.py", ("num_generations=8", "num_generations=count()"))
    told = refused(launch("python-program.sh"), worked_out, launch("zero3-config.yaml"))
    assert any("--num_generations" in each and "works it out" in each for each in told)
    alone = read(program)
    assert alone.placement.copies[0].num_gpus == 8
    assert any("8 processes, one on each GPU" in each.text for each in alone.remarks)


def test_a_server_generates_on_gpus_of_its_own() -> None:
    found = read(launch("server-vllm.sh"))
    ranges = {c.id: (c.first_gpu, c.num_gpus) for c in found.placement.copies}
    assert ranges["actor.shadow"] == (4, 4)
    assert ranges["actor"] == ranges["reference"] == (0, 4)
    engine = next(c for c in found.placement.calls if c.kind == "generate").parallelism
    assert engine is not None
    assert (engine.tensor_parallel_size, engine.data_parallel_size) == (2, 2)
    assert found.cache_bytes == 30_000_000_000
    slurm = read(launch("server-slurm.sh"), launch("fsdp-config.yaml"))
    ranges = {c.id: (c.first_gpu, c.num_gpus) for c in slurm.placement.copies}
    assert ranges == {"actor": (0, 16), "actor.shadow": (16, 8)}
    told = refused(launch("server-elsewhere.sh"), launch("zero3-config.yaml"))
    assert any("no command that starts one" in each for each in told)


def test_what_is_left_out_is_trls_default() -> None:
    text = "accelerate launch -m trl.scripts.{} --model_name_or_path Qwen/Qwen2.5-7B"
    found = read(LaunchFile("a.sh", text.format("grpo")))
    workload = found.spec.workload
    assert (workload.prompts_per_iteration, workload.responses_per_prompt) == (8, 8)
    assert set(found.spec.models) == {"actor", "reward"}
    train = next(c for c in found.placement.calls if c.kind == "train")
    assert (train.micro_batch_size, train.recompute) == (8, "full")
    rloo = read(LaunchFile("a.sh", text.format("rloo")))
    assert rloo.spec.workload.responses_per_prompt == 2
    assert rloo.spec.workload.kl == "reward"
    assert "reference" in rloo.spec.models


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("num_generations 16", "num_generations 1"), "TRL asks for two"),
        (("num_generations 16", "num_generations 7"), "no whole prompts"),
        (("num_processes 8", "num_processes 8 --num_machines 3"), "processes on 3 nodes"),
        (("accelerate_config zero3", "accelerate_config own"), "is not among the files"),
        (("accelerate_config zero3", "zero_stage 4 --use_deepspeed"), "known: 0, 1, 2, 3"),
        (("vllm_mode colocate", "vllm_mode together"), "known: colocate, server"),
        (("vllm_mode colocate", "vllm_tensor_parallel_size 3"), "engines of 3 GPUs on 8"),
        (("batch_size 4", "batch_size four"), "no whole number"),
        (("batch_size 4", "batch_size 4 --generation_batch_size 100"), "no multiple of 32"),
    ],
)
def test_what_cannot_be_is_refused_by_argument(change: tuple[str, str], words: str) -> None:
    told = refused(launch("cli.sh", change))
    assert any(words in each for each in told), told


@pytest.mark.parametrize(
    ("added", "kind", "words"),
    [
        ("--num_completions 3", "does not fit", "--num_completions is no key"),
        ("--max_prompt_length 512", "does not fit", "prompts are not cut"),
        ("--beta 0.1", "contradiction", "twice"),
        ("--optim adafactor", "saves memory", "as adam"),
        ("--use_liger_kernel true", "saves memory", "never hold the logits"),
        ("--offload_optimizer_device cpu", "saves memory", "stayed on the GPU"),
        ("--steps_per_generation 8 --generation_batch_size 256", "does not fit", "not start so"),
        ("--reward_model_name_or_path a/b", "not priced", "scores in no time"),
        ("--learning_rate 1e-5", "contradiction", "--learning_rate comes twice"),
    ],
)
def test_what_is_odd_is_said(added: str, kind: str, words: str) -> None:
    found = read(launch("cli.sh", ("--use_vllm --", f"{added} --use_vllm --"))).remarks
    assert any(words in each.text for each in found if each.kind == kind), found


def test_what_is_given_beside_the_files_wins() -> None:
    for values in (
        {"--per_device_train_batch_size": "2"},
        {"per_device_train_batch_size": "2"},
    ):
        found = read(launch("cli.sh"), values=values)
        assert {c.micro_batch_size for c in found.placement.calls if c.micro_batch_size} == {2}
    found = read(launch("cli.sh"), values={"accelerate.num_processes": "4"})
    assert found.placement.copies[0].num_gpus == 4


def test_a_launch_of_another_framework_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    [told] = refused(verl)
    assert "which is verl, not trl (import it as verl@0.9.1)" in told
    [told] = refused(launch("cli.sh"), target="verl@0.9.1")
    assert "which is trl, not verl (import it as trl@1.16.0)" in told
    nemo = LaunchFile("a.sh", "uv run python examples/run_grpo.py --config x.yaml\n")
    [told] = refused(nemo)
    assert "which is nemo-rl, not trl" in told
    sft = LaunchFile("a.sh", "trl sft --model_name_or_path Qwen/Qwen2.5-7B\n")
    assert any("trl sft, which generates nothing" in each for each in refused(sft))
    assert "nothing starts TRL" in refused(LaunchFile("a.yaml", document={"a": 1}))[0]


def test_a_recipe_is_a_launch_by_itself() -> None:
    recipe = launch("recipe-small.yaml")
    alone, started = read(recipe), read(launch("cli-config.sh"), recipe)
    assert (alone.spec, alone.placement) == (started.spec, started.placement)
    assert any("trl grpo --config recipe-small.yaml" in each.text for each in alone.remarks)
    whole = read(launch("recipe-math.yaml"), launch("zero3-config.yaml"))
    assert whole.placement.copies[0].layout.sharding == "full"
    [told] = refused(recipe, target="nemo-rl@0.7.0")
    assert "has the section num_generations, which is trl, not nemo-rl" in told


def test_a_plan_is_written_into_a_launch_and_the_rest_stays() -> None:
    file = launch("cli.sh", ("Qwen2.5-7B", "Qwen2.5-0.5B"), ("batch_size 4", "batch_size 1"))
    before = read(file)
    plan = estimate(before.spec, before.placement)
    calls = [
        call.model_copy(update={"recompute": "none"}) if call.kind == "train" else call
        for call in before.placement.calls
    ]
    changed = before.placement.model_copy(update={"calls": calls})
    written = export_into(estimate(before.spec, changed), [file], TARGET)
    assert "--gradient_checkpointing False" in written.text
    assert read(LaunchFile(file.name, written.text)).placement == changed
    assert plan.placement().copies == before.placement.copies


@pytest.mark.slow
def test_other_micro_batches_are_written_with_as_many_sequences_of_a_step() -> None:
    for more in ("", "--steps_per_generation 16 "):
        file = launch("cli.sh", ("--use_vllm --", f"{more}--use_vllm --"))
        before = read(file)
        calls = [
            call.model_copy(update={"micro_batch_size": 2}) if call.micro_batch_size else call
            for call in before.placement.calls
        ]
        smaller = before.placement.model_copy(update={"calls": calls})
        written = export_into(estimate(before.spec, smaller), [file], TARGET)
        again = read(LaunchFile(file.name, written.text))
        assert again.placement.copies == smaller.copies
        sizes = {c.micro_batch_size for c in again.placement.calls if c.micro_batch_size}
        assert sizes == {2}
        assert again.spec.workload == before.spec.workload
        assert "--gradient_accumulation_steps 16" in written.text
        assert ("--steps_per_generation 32" in written.text) == bool(more)
        assert "generation_batch_size" not in written.text


@pytest.mark.slow
def test_advice_is_lines_of_the_launch() -> None:
    answers = Answers("h100", **LENGTHS)
    advice = advise([launch("cli.sh")], TARGET, answers, time_limit_seconds=5.0, learning=True)
    assert advice.iteration_seconds is not None
    assert advice.together_seconds is not None
    assert advice.together_seconds <= advice.iteration_seconds
    changed = {line.name for change in advice.changes for line in change.lines}
    # An optimizer step has as many sequences as before.
    accumulated = "--gradient_accumulation_steps" in changed
    assert accumulated == ("--per_device_train_batch_size" in changed)
