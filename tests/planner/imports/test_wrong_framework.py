"""A launch that is given to another framework's importer is refused by its own framework's name."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from automap.planner.errors import NotImportableError, SpecError
from automap.planner.frameworks import framework, framework_names
from automap.planner.imports import Answers, Imported, LaunchFile
from automap.planner.imports.importing import import_launch, recognised
from automap.planner.spec import LengthSpec
from benchmarks.imports import imported
from benchmarks.launch_corpus import corpus

PROGRAM = "from trl import GRPOConfig, GRPOTrainer\ntrainer = GRPOTrainer(args=GRPOConfig())\n"


def told(files: Sequence[LaunchFile], target: str) -> list[str]:
    with pytest.raises(NotImportableError) as refused:
        import_launch(files, target, Answers("h100"))
    return [f"{each.summary} ({each.remedy})" for each in refused.value.reasons]


@pytest.mark.slow
@pytest.mark.parametrize(("own", "other"), list(permutations(framework_names(), 2)))
def test_launches_of_the_corpora_are_named(own: str, other: str) -> None:
    name, wrong = (framework(each).name for each in (own, other))
    launches = corpus(name)
    assert len(launches) >= 20
    for written in launches[::3]:
        found = imported(written, written.help, other)
        assert isinstance(found, list), written.name
        assert len(found) == 1, (written.name, found)
        assert found[0].endswith(f"which is {name}, not {wrong}"), (written.name, found)


@pytest.mark.parametrize("target", framework_names())
def test_a_launch_is_recognised(target: str) -> None:
    for written in corpus(framework(target).name):
        assert recognised(written.files, Answers("h100")) == target, written.name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python3 train_mine.py --lr 1\n", "of no framework known here"),
        (
            "python3 -m verl.trainer.main_ppo a.b=1\npython3 -m openrlhf.cli.train_ppo_ray --a 1\n",
            "it is of several frameworks: a.sh line 2 starts openrlhf.cli.train_ppo_ray "
            "(openrlhf@0.11.2); a.sh line 1 starts verl.trainer.main_ppo (verl@0.9.1)",
        ),
    ],
)
def test_a_launch_that_does_not_say_whose_it_is_is_refused(text: str, words: str) -> None:
    with pytest.raises(NotImportableError) as refused:
        recognised([LaunchFile("a.sh", text)], Answers("h100"))
    [reason] = refused.value.reasons
    assert words in reason.summary
    assert reason.remedy is not None
    assert reason.remedy.startswith("say of which with --from: ")


def test_a_recipe_is_known_by_what_it_inherits_from() -> None:
    recipe = LaunchFile("ours.yaml", document={"defaults": "../grpo_math_8B_megatron.yaml"})
    [found] = told([recipe], "verl@0.9.1")
    assert found.startswith("ours.yaml inherits from grpo_math_8B_megatron, which is nemo-rl")
    several = {"defaults": ["ppo_trainer", "_self_"], "trainer": {"nnodes": 1}}
    [found] = told([LaunchFile("ours.yaml", document=several)], "areal@1.0.4")
    assert found == (
        "ours.yaml inherits from ppo_trainer, which is verl, not areal (import it as verl@0.9.1)"
    )


def test_a_program_in_python_is_no_script() -> None:
    [found] = told([LaunchFile("train.py", PROGRAM)], "slime@0.3.1")
    assert found.startswith("train.py is a program with its trainer, which is trl, not slime")
    [found] = told([LaunchFile("reward.py", "def score(): return 1.0\n")], "verl@0.9.1")
    assert found == "reward.py is Python, and is not run (name the script that starts it)"
    verl = "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n"
    files = [LaunchFile("a.sh", verl), LaunchFile("reward.py", "for each in []: pass\n")]
    assert not any("'for' without 'do'" in each for each in told(files, "verl@0.9.1"))


@pytest.mark.parametrize("target", ["verl@0.9.0", "openrlhf@0.10.1", "trl@", "NeMo-RL@0.7.0"])
def test_a_version_that_is_not_described_is_refused_with_those_that_are(target: str) -> None:
    with pytest.raises(SpecError, match="unknown target") as refused:
        import_launch([LaunchFile("a.sh", "true\n")], target, Answers("h100"))
    for name in framework_names():
        assert name in str(refused.value)


MISSPELT = {
    "verl": ("grpo-7b", "actor_rollout_ref.model.path", "actor_rollout_ref.model.paht"),
    "slime": ("colocated-4b", "--rollout-batch-size", "--rollout-batchsize"),
    "nemo-rl": ("qwen-7b-megatron", "policy.model_name", "policy.model_nam"),
    "openrlhf": ("hybrid-grpo", "--actor.model_name_or_path", "--actor.model_name_or_paht"),
    "trl": ("cli", "--model_name_or_path", "--model_nam_or_path"),
    "skyrl": ("gsm8k", "trainer.policy.model.path", "trainer.policy.model.paht"),
    "areal": ("grpo-fsdp", "actor.path", "actor.pth"),
}
"""Framework → a launch of its corpus, a key that it has to set, and how its author wrote that."""


@pytest.mark.parametrize("target", framework_names())
def test_a_key_that_is_missing_because_it_is_misspelt_is_named(target: str) -> None:
    name, right, wrong = MISSPELT[framework(target).name]
    [written] = [each for each in corpus(framework(target).name) if each.name == name]
    files = [_misspelt(file, right, wrong) for file in written.files]
    found = told(files, target)
    assert any(wrong in each and f"did you mean {right}?" in each for each in found), found


@pytest.mark.parametrize("target", framework_names())
def test_a_misspelt_key_is_read_as_the_one_that_is_meant_where_that_is_said(target: str) -> None:
    name, right, wrong = MISSPELT[framework(target).name]
    [written] = [each for each in corpus(framework(target).name) if each.name == name]
    files = [_misspelt(file, right, wrong) for file in written.files]
    with pytest.raises(NotImportableError) as refused:
        import_launch(files, target, Answers("h100"))
    assert refused.value.misspelt == {wrong: right}
    meant, as_written = (
        _told_or_settings(each, target, respelt)
        for each, respelt in ((files, {wrong: right}), (written.files, {}))
    )
    assert meant == as_written


def _told_or_settings(
    files: Sequence[LaunchFile], target: str, respelt: dict[str, str]
) -> list[str] | dict[str, str]:
    length = LengthSpec.model_construct(None, **dict.fromkeys(LengthSpec.model_fields))
    length = length.model_copy(update={"mean": 200.0})
    try:
        answers = Answers("h100", {}, length, length, respelt=respelt)
        return {each.key: each.value for each in import_launch(files, target, answers).settings}
    except NotImportableError as error:
        return [each.summary for each in error.reasons]


@pytest.mark.parametrize(
    "unlike",
    [
        # Long in common, and another word all the same.
        "actor_rollout_ref.actor.optim.lrs",
        "actor_rollout_ref.actor.ppo_things",
    ],
)
def test_a_key_that_may_be_meant_for_several_or_for_none_is_left(unlike: str) -> None:
    [written] = [each for each in corpus("verl") if each.name == "grpo-7b"]
    text = written.files[0].text.replace("$@", f"{unlike}=1")
    found = imported(replace(written, files=(LaunchFile("a.sh", text),)))
    assert isinstance(found, Imported)
    assert found.misspelt == {}


def _misspelt(file: LaunchFile, right: str, wrong: str) -> LaunchFile:
    if file.document is None:
        return LaunchFile(file.name, file.text.replace(right, wrong))
    section, key = right.rsplit(".", 1)
    assert isinstance(file.document, dict)
    settings = dict(file.document[section])
    settings[wrong.rsplit(".", 1)[1]] = settings.pop(key)
    return LaunchFile(file.name, document=file.document | {section: settings})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "deepspeed --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen2.5-7B\n",
            "openrlhf.cli.train_dpo",
        ),
        (
            "torchrun -m verl.trainer.fsdp_sft_trainer data.train_files=a\n",
            "verl.trainer.fsdp_sft_trainer",
        ),
        ("trl sft --model_name_or_path Qwen/Qwen2.5-7B\n", "trl sft"),
    ],
)
def test_training_without_rollouts_is_said_not_to_be_planned(text: str, told: str) -> None:
    files = [LaunchFile("a.sh", "# trl dpo\n" + text)]
    with pytest.raises(NotImportableError) as refused:
        recognised(files, Answers("h100"))
    [reason] = refused.value.reasons
    assert reason.summary.startswith(f"a.sh line 2 starts {told}, which generates nothing")
    target = next(name for name in framework_names() if name.partition("@")[0] in told)
    with pytest.raises(NotImportableError) as refused:
        import_launch(files, target, Answers("h100"))
    assert [each.summary for each in refused.value.reasons] == [reason.summary]
