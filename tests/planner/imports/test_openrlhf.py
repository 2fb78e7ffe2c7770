"""Launches of OpenRLHF: what they say, what is asked for, and exports that are read back."""

import pytest

from automap.planner import NotImportableError, export_into
from automap.planner.exports.exporting import export
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.job.resolution import resolve
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.launch_corpus import FOLDER
from tests.helpers.openrlhf_plans import SAMPLE, plan_of
from tests.planner.imports.corpus_reader import Corpus

TARGET = "openrlhf@0.11.2"
CORPUS = Corpus(TARGET, FOLDER / "openrlhf", ".sh")
LENGTHS = CORPUS.lengths
launch = CORPUS.launch


def read(
    *files: LaunchFile, values: dict[str, str] | None = None, gpus_per_node: int | None = None
) -> Imported:
    answers = Answers("h100", values or {}, **LENGTHS, gpus_per_node=gpus_per_node)
    return import_launch(files, TARGET, answers)


def refused(
    *files: LaunchFile, target: str = TARGET, gpus_per_node: int | None = None
) -> list[str]:
    with pytest.raises(NotImportableError) as error:
        import_launch(files, target, Answers("h100", **LENGTHS, gpus_per_node=gpus_per_node))
    return [f"{reason.summary} ({reason.remedy})" for reason in error.value.reasons]


@pytest.mark.slow
def test_nine_in_ten_launches_are_imported_without_help_and_all_with_it() -> None:
    CORPUS.helped()


@pytest.mark.parametrize("share", ["0.85", "0.95"])
def test_an_engine_that_has_its_gpus_for_itself_takes_what_it_finds(share: str) -> None:
    """vLLM sizes its cache by what is free: what is estimated wrongly is not missing, but cache."""
    file = launch(
        "every-model-apart", ("gpu_memory_utilization 0.6", f"gpu_memory_utilization {share}")
    )
    found = read(file)
    plan = estimate(found.spec, found.placement)
    assert not [each for each in found.remarks if each.kind == "does not fit"]
    generates = next(call for call in plan.calls if call.kind == "generate")
    assert generates.out_of_memory_probability is not None
    assert generates.out_of_memory_probability <= 0.006
    assert hazards(found, plan) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ppo", "ppo, a reward model, in two groups", "each apart", "ahead", "tokens"]
)
def test_an_export_is_read_back_and_exported_again_as_it_was(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    before = export(plan, TARGET, spare_cache=False)
    values = {each.variable: "/m/Qwen2.5-1.5B" for each in before.placeholders}
    values |= {"KL_COEFFICIENT": "0.01", "NODE_RANK": "0", "HEAD_ADDRESS": "a"}
    workload = plan.spec.workload
    answers = Answers(
        "h100",
        values,
        prompt_length=workload.prompt_length,
        response_length=workload.response_length,
    )
    found = import_launch([LaunchFile("a.sh", before.script)], TARGET, answers)
    assert found.spec.workload == workload
    ranges = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in plan.placement().copies]
    again = [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in found.placement.copies]
    assert again == ranges
    priced = estimate(found.spec, found.placement)
    assert hazards(found, priced) == []
    after = export(priced, TARGET, spare_cache=False)
    given = [{s.key: s.value for s in each.settings} for each in (before, after)]
    share = "--vllm.gpu_memory_utilization"
    shares = [float(each.pop(share)) for each in given]
    assert shares[0] == pytest.approx(shares[1], abs=2e-4)
    assert given[0] == given[1]


def test_models_are_where_the_switches_put_them() -> None:
    def ranges(name: str) -> dict[str, tuple[int, int]]:
        copies = read(launch(name)).placement.copies
        return {copy.id: (copy.first_gpu, copy.num_gpus) for copy in copies}

    assert set(ranges("hybrid-ppo").values()) == {(0, 8)}
    two = ranges("two-groups")
    assert two["actor"] == two["reference"] == (0, 8)
    assert two["critic"] == two["reward"] == (8, 8)
    apart = ranges("every-model-apart")
    assert len(set(apart.values())) == len(apart) == 5
    pairs = ranges("pairs")
    assert pairs["critic"] == pairs["reward"] != pairs["actor"] == pairs["reference"]
    ahead = ranges("ahead")
    assert ahead == {"actor": (0, 8), "reference": (0, 8), "actor.shadow": (8, 8)}
    smaller = read(
        launch("hybrid-ppo", ("--critic.num_gpus_per_node 8", "--critic.num_gpus_per_node 4"))
    )
    critic = next(copy for copy in smaller.placement.copies if copy.id == "critic")
    assert (critic.first_gpu, critic.num_gpus) == (0, 4)


def test_what_is_left_out_is_openrlhfs_default() -> None:
    text = (
        "python3 -m openrlhf.cli.train_ppo_ray --vllm.num_engines 8 --train.colocate_all "
        "--actor.model_name_or_path Qwen/Qwen2.5-7B --reward.remote_url r.py"
    )
    found = read(LaunchFile("a.sh", text))
    workload = found.spec.workload
    assert found.spec.algorithm == "ppo"
    assert (workload.prompts_per_iteration, workload.sequences_per_update) == (1024, 128)
    assert set(found.spec.models) == {"actor", "reference", "critic", "reward"}
    train = next(c for c in found.placement.calls if c.id == "actor.train")
    assert (train.micro_batch_size, train.recompute) == (1, "none")
    assert found.placement.copies[0].layout.sharding == "gradient"
    assert not workload.packed_sequences
    short = text.replace("--vllm.num_engines", "--vllm.num_eng")
    assert read(LaunchFile("a.sh", short)).placement == found.placement


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("hybrid-grpo", ("estimator group_norm", "estimator ppo"), "known: gae"),
        ("hybrid-grpo", ("train.batch_size 128", "train.batch_size 100"), "does not divide"),
        ("hybrid-grpo", ("num_engines 4", "num_engines 3"), "share the actor's 8"),
        ("hybrid-grpo", ("   --vllm.num_engines 4 \\\n", ""), "--vllm.num_engines is not set"),
        ("hybrid-grpo", ("ref.num_gpus_per_node 8", "ref.num_gpus_per_node 4"), "in a group of"),
        ("hybrid-grpo", ("zero_stage 3", "zero_stage 4"), "known: 0, 1, 2, 3"),
        ("hybrid-grpo", ("zero_stage 3", "zero_stage three"), "no whole number"),
        ("hybrid-grpo", ("n_samples_per_prompt 8", "n_samples_per_prompt 1"), "more than 1"),
        ("ring", ("ring_attn_size 2", "ring_attn_size 3"), "do not divide"),
        ("hybrid-grpo", ("actor.num_nodes 1", "actor.num_nodes 9999999"), "at most 1000000 GPUs"),
    ],
)
def test_what_cannot_be_is_refused_by_argument_and_line(
    name: str, change: tuple[str, str], words: str
) -> None:
    assert any(words in each for each in refused(launch(name, change)))


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            ("--ds.zero_stage 3", "--ds.zero_stage 3 --rollout.batchsize 3"),
            "does not fit",
            "--rollout.batch_size",
        ),
        (
            ("--ds.zero_stage 3", "--ds.zero_stage 3 --colocate_all_models"),
            "does not fit",
            "--train.colocate_all",
        ),
        (
            ("--ds.zero_stage 3", "--ds.zero_stage 3 --prompt_max_len 1024"),
            "does not fit",
            "--data.max_len",
        ),
        (
            ("--ds.zero_stage 3", "--ds.zero_stage 3 --ds.adam_offload"),
            "saves memory",
            "Adam on the host",
        ),
        (("--ds.zero_stage 3", "--ds.zero_stage 2 --ref.offload"), "without effect", "ZeRO 3"),
        (("--ds.zero_stage 3", "--ds.zero_stage 3 --ref.offload"), "saves memory", "loaded once"),
        (
            ("--train.colocate_all", "--train.colocate_all --train.async_enable"),
            "does not fit",
            "does not start",
        ),
        (("--vllm.enable_sleep", "--vllm.enforce_eager"), "not priced", "keep their memory"),
        (
            ("--ds.zero_stage 3", "--ds.zero_stage 3 --train.batch_size 256"),
            "contradiction",
            "twice",
        ),
        (("--ds.zero_stage 3", "--ds.zero_stage 3 --actor.optim muon"), "saves memory", "as adam"),
        (("max_new_tokens 3072", "max_new_tokens 5000"), "contradiction", "in all"),
    ],
)
def test_what_is_odd_is_said(change: tuple[str, str], kind: str, words: str) -> None:
    found = read(launch("hybrid-grpo", change)).remarks
    assert any(words in each.text for each in found if each.kind == kind), found


APART = (
    ("--train.colocate_all", "--train.colocate_actor_ref"),
    ("--vllm.enable_sleep", ""),
    ("--ds.enable_sleep", ""),
    ("ref.num_gpus_per_node 8", "ref.num_gpus_per_node 4"),
    ("actor.num_gpus_per_node 8", "actor.num_gpus_per_node 4"),
    ("--vllm.num_engines 4", "--vllm.num_engines 2"),
)
"""4 GPUs that train beside as many that generate."""


@pytest.mark.parametrize(
    ("nodes", "stated", "cluster", "first"),
    [
        (1, None, (1, 8), 4),
        (2, None, (2, 8), 8),
        (2, 4, (3, 4), 8),
        (1, 16, (1, 16), 4),
    ],
)
def test_ray_packs_groups_onto_nodes(
    nodes: int, stated: int | None, cluster: tuple[int, int], first: int
) -> None:
    """What a model has of each node says nothing of how many GPUs that has."""
    several = [(f"{who}.num_nodes 1", f"{who}.num_nodes {nodes}") for who in ("ref", "actor")]
    found = read(launch("hybrid-grpo", *APART, *several), gpus_per_node=stated)
    pool = resolve(found.spec).pools[0]
    assert (pool.num_nodes, pool.gpus_per_node) == cluster
    shadow = next(copy for copy in found.placement.copies if copy.kind == "shadow")
    assert (shadow.first_gpu, shadow.num_gpus) == (first, 4)
    assert "whole nodes" not in str(hazards(found, estimate(found.spec, found.placement)))


def test_a_node_has_what_is_asked_for_of_one() -> None:
    [told] = refused(launch("hybrid-grpo"), gpus_per_node=4)
    assert "8 GPUs of a node" in told
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    assert "verl says it itself" in refused(verl, target="verl@0.9.1", gpus_per_node=4)[0]


def test_what_is_given_beside_the_files_wins() -> None:
    for name in ("--rollout.micro_batch_size", "rollout.micro_batch_size"):
        found = read(launch("hybrid-grpo"), values={name: "2"})
        call = next(c for c in found.placement.calls if c.id == "reference.forward")
        assert call.micro_batch_size == 2


def test_a_launch_of_another_framework_or_version_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    [told] = refused(verl)
    assert "which is verl, not openrlhf (import it as verl@0.9.1)" in told
    [told] = refused(launch("hybrid-grpo"), target="slime@0.3.1")
    assert "which is openrlhf, not slime (import it as openrlhf@0.11.2)" in told
    old = (
        "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --ref_num_nodes 1 "
        "--colocate_all_models --pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 8\n"
    )
    [told] = refused(LaunchFile("a.sh", old))
    assert "a.sh line 1 starts an earlier version than 0.11.2" in told
    assert "rename them: --ref_num_nodes is --ref.num_nodes; " in told
    other = LaunchFile("a.sh", "deepspeed --module openrlhf.cli.train_sft --max_len 1\n")
    assert any("train_sft, which generates nothing" in each for each in refused(other))
    document = LaunchFile("a.yaml", document={"a": 1})
    assert "OpenRLHF is started by a script alone" in refused(document)[0]


@pytest.mark.slow
def test_a_plan_is_written_into_a_launch_and_the_rest_stays() -> None:
    file = launch("hybrid-grpo")
    before = read(file)
    plan = estimate(before.spec, before.placement)
    assert export_into(plan, [file], TARGET).text == file.text
    calls = [
        call.model_copy(update={"recompute": "none"}) if call.kind == "train" else call
        for call in before.placement.calls
    ]
    placement = before.placement.model_copy(update={"calls": calls})
    written = export_into(estimate(before.spec, placement), [file], TARGET)
    assert written.removed == ["--actor.gradient_checkpointing_enable"]
    left = [line for line in file.text.splitlines() if "gradient_checkpointing" not in line]
    assert written.text.splitlines() == left


@pytest.mark.slow
def test_advice_is_lines_of_the_launch() -> None:
    file = launch("hybrid-grpo")
    advice = advise([file], TARGET, Answers("h100", **LENGTHS), time_limit_seconds=5.0)
    assert all(line.key.startswith("--") for change in advice.changes for line in change.lines)
    assert advice.together_seconds is not None
    assert advice.iteration_seconds is not None
    assert advice.together_seconds <= advice.iteration_seconds
