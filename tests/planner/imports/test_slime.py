"""Launches of slime: what they say, what is asked for, and exports that are read back."""

import pytest

from automap.planner import NotImportableError, Plan, export_into
from automap.planner.errors import InfeasibleError
from automap.planner.exports.exporting import export, settings_of
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.imports import WANTED, imported
from benchmarks.launch_corpus import SLIME as FOLDER
from benchmarks.launch_corpus import corpus, file_of
from tests.helpers.broken_exports import changed
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.slime_plans import SAMPLE, SGLANG, given, product
from tests.planner.imports.corpus_reader import Corpus
from tests.planner.imports.test_round_trip import said

TARGET = "slime@0.3.1"
CORPUS = Corpus(TARGET, FOLDER, ".sh", mean=400.0)
LENGTHS = CORPUS.lengths
launch, read = CORPUS.launch, CORPUS.read


def refused(*files: LaunchFile, target: str = TARGET) -> list[str]:
    with pytest.raises(NotImportableError) as caught:
        import_launch(files, target, Answers("h100", **LENGTHS))
    assert all(reason.remedy for reason in caught.value.reasons)
    return [f"{reason.summary} ({reason.remedy})" for reason in caught.value.reasons]


def same_round_trip(plan: Plan) -> None:
    workload = plan.spec.workload
    models = {
        role: model.architecture
        for role, model in plan.spec.models.items()
        if model.architecture is not None and role != "reference"
    }
    answers = Answers("h100", {}, workload.prompt_length, workload.response_length, models)
    written = export(plan, TARGET, spare_cache=False)
    found = import_launch([LaunchFile("launch.sh", written.script)], TARGET, answers)
    assert said(found.placement) == said(plan)
    # slime is told of turns by a function, and of no seconds.
    left = {"turns", "environment_seconds_per_turn", "checkpoint_seconds"}
    assert found.spec.workload.model_dump(exclude=left) == workload.model_dump(exclude=left)
    assert found.spec.algorithm == plan.spec.algorithm
    assert found.spec.search.staleness == plan.spec.search.staleness
    again = estimate(found.spec, found.placement)
    assert hazards(found, again) == []
    if workload.turns == 1:
        assert given(export(again, TARGET, spare_cache=False)) == given(written)
    assert {each.kind for each in found.remarks} <= {"assumed", "not priced"}


@pytest.mark.parametrize("name", ["grpo", "apart"])
def test_a_cache_is_read_back_to_the_token(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    [generate] = [call for call in plan.calls if call.kind == "generate"]
    odd = (generate.kv_cache_bytes or 0) // 3
    plan = estimate(plan.spec, changed(plan, "calls", generate.id, kv_cache_bytes=odd).placement())
    written = export(plan, TARGET, spare_cache=False)
    tokens = int(given(written)["--sglang-max-total-tokens"])
    workload, model = plan.spec.workload, plan.spec.models["actor"].architecture
    assert model is not None
    answers = Answers(
        "h100", {}, workload.prompt_length, workload.response_length, {"actor": model}
    )
    found = import_launch([LaunchFile("launch.sh", written.script)], TARGET, answers)
    each = found.cache_bytes // tokens
    assert found.cache_bytes == tokens * each
    assert odd - each < found.cache_bytes <= odd
    # Without the tokens it is what the share leaves.
    left = written.script.replace(f"--sglang-max-total-tokens {tokens}", "")
    share = import_launch([LaunchFile("launch.sh", left)], TARGET, answers).cache_bytes
    assert found.cache_bytes < share <= found.cache_bytes + 2**23


TOKENS = "--sglang-max-total-tokens"


def test_the_cache_is_the_smaller_of_share_and_tokens() -> None:
    before = read(launch("colocated-4b")).cache_bytes
    share = "--sglang-mem-fraction-static 0.7"
    few, many = (
        read(launch("colocated-4b", (share, f"{share} {TOKENS} {tokens}")))
        for tokens in (100_000, 100_000_000)
    )
    # 36 layers with 8 heads of 128, keys and values in 2 bytes, over engines of 2 GPUs.
    assert few.cache_bytes == 100_000 * 36 * 4 * 128 * 2 * 2
    assert few.cache_bytes < before == many.cache_bytes
    assert not [each for each in few.remarks if TOKENS in each.text]
    short = read(launch("colocated-4b", (share, f"{share} {TOKENS} 100")))
    [told] = [each.text for each in short.remarks if each.kind == "does not fit"]
    assert f"{TOKENS} (line " in told
    assert "100 tokens are 0.0 GiB" in told


def test_tokens_of_a_cache_with_windows_are_not_priced() -> None:
    file = launch("colocated-4b", ("--sglang-mem", f"{TOKENS} 100000 --sglang-mem"))
    answers = Answers("h100", models={"actor": "gpt-oss-20b"}, **LENGTHS)
    without = launch("colocated-4b")
    caches = [import_launch([each], TARGET, answers) for each in (file, without)]
    assert caches[0].cache_bytes == caches[1].cache_bytes
    [told] = [each.text for each in caches[0].remarks if TOKENS in each.text]
    assert "100000 tokens have no one size where layers keep windows or states" in told
    wanted = Wanted(model="gemma-3-12b", tensor=8, workload=SGLANG)
    assert TOKENS not in {each.key for each in settings_of(plan_of(wanted), TARGET)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_an_exported_plan_is_read_back(name: str) -> None:
    same_round_trip(plan_of(SAMPLE[name]))


@pytest.mark.slow
def test_the_product_of_exported_plans_is_read_back() -> None:
    done = 0
    for wanted in product().values():
        try:
            plan = plan_of(wanted)
        except InfeasibleError:
            continue
        same_round_trip(plan)
        done += 1
    assert done >= 100


@pytest.mark.slow
def test_most_launches_need_no_help_and_the_others_what_they_name() -> None:
    launches = corpus("slime")
    assert len(launches) >= 23
    alone = {each.name: imported(each, target=TARGET) for each in launches}
    asked = {name for name, found in alone.items() if isinstance(found, list)}
    assert len(asked) <= (1 - WANTED) * len(launches), asked
    assert asked == {each.name for each in launches if each.help}
    for each in launches:
        assert isinstance(imported(each, each.help, TARGET), Imported)


def test_a_launch_says_its_placement() -> None:
    found = read(launch("async-4b"))
    copies = {
        copy.id: (copy.first_gpu, copy.num_gpus, copy.offload) for copy in found.placement.copies
    }
    assert copies == {
        "actor": (0, 4, "none"),
        "reference": (0, 4, "weights"),
        "actor.shadow": (4, 4, "none"),
    }
    assert found.spec.search.staleness == 1
    assert found.spec.workload.updates_per_epoch == 1
    together = read(launch("colocated-4b"))
    [actor] = [copy for copy in together.placement.copies if copy.id == "actor"]
    assert (actor.num_gpus, actor.offload, actor.layout.data_parallel_size) == (8, "weights", 4)
    assert together.spec.search.staleness == 0


def test_sizes_come_from_the_file_of_model_arguments_that_is_named() -> None:
    files = [file_of(name, folder=FOLDER) for name in ("own-model.sh", "own-3B.model.sh")]
    shape = read(*files).spec.models["actor"].architecture
    assert not isinstance(shape, str | None)
    assert (shape.num_layers, shape.hidden_size, shape.num_key_value_heads) == (28, 2816, 2)
    [asked] = refused(files[0])
    assert "--hf-checkpoint" in asked
    assert "--model actor=" in asked


def test_sizes_that_contradict_the_name_are_said() -> None:
    other = file_of("own-3B.model.sh", folder=FOLDER)
    script = launch("own-model", ("/data/our-3B", "/data/Qwen3-4B"))
    found = [each.text for each in read(script, other).remarks if each.kind == "contradiction"]
    assert "--num-layers is 28, and Qwen3-4B has 36" in found


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("colocated-4b", ("--advantage-estimator grpo", "--advantage-estimator gae"), "known: ppo"),
        ("colocated-4b", ("--global-batch-size 256", "--global-batch-size 100"), "does not divide"),
        ("colocated-4b", ("--global-batch-size 256", ""), "--num-steps-per-rollout"),
        ("colocated-4b", ("   --colocate", "   --no-colocate"), "neither is --colocate"),
        ("colocated-4b", ("per-engine 2", "per-engine 3"), "engines of 3 GPUs on 8"),
        ("colocated-4b", ("parallel-size 2", "parallel-size 3"), "they do not divide"),
        ("colocated-4b", ("parallel-size 2", "parallel-size two"), "no whole number"),
        ("flat", ("--rollout-batch-size=$((4 * 16))", ""), "--rollout-batch-size is not set"),
        (
            "mixture-attention-replicas",
            ("   --sglang-enable-dp-attention\n", ""),
            "without --sglang",
        ),
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
            ("--max-tokens-per-gpu 9216", "--max-token-per-gpu 9216"),
            "does not fit",
            "did you mean --max-tokens-per-gpu?",
        ),
        (
            ("--lr 1e-6", "--lr 1e-6\n   --rollout-batchsize 3"),
            "unknown key",
            "--rollout-batch-size",
        ),
        (("--lr 1e-6", "--lr 1e-6\n   --offload"), "replaced", "--offload-train"),
        (("--lr 1e-6", "--lr 1e-6\n   --use-distributed-optimizer"), "without effect", "always on"),
        (("--max-tokens-per-gpu 9216", "--max-tokens-per-gpu 4096"), "contradiction", "goes alone"),
        (("--lr 1e-6", "--lr 1e-6\n   --n-samples-per-prompt 8"), "contradiction", "twice"),
        (("python3 train.py", "python3 train_async.py"), "does not fit", "does not start with it"),
        (
            ("--lr 1e-6", "--lr 1e-6\n   --exp-avg-dtype bf16"),
            "saves memory",
            "the precision of the optimizer's state",
        ),
    ],
)
def test_what_is_odd_is_said(change: tuple[str, str], kind: str, words: str) -> None:
    found = [each for each in read(launch("colocated-4b", change)).remarks if each.kind == kind]
    assert any(words in each.text and each.line for each in found), found


ROUTED = """--moe-router-score-function sigmoid --moe-router-pre-softmax
   --moe-router-enable-expert-bias --moe-router-bias-update-rate 0 --moe-router-dtype fp32
   --moe-router-num-groups 8 --moe-router-group-topk "$(config topk_group)"
   --moe-router-topk-scaling-factor 2.5 --rotary-scaling-factor "$(config factor)" --mscale 1.0
   --mscale-all-dim 1.0 --use-rope-scaling"""
"""What MODEL_ARGS of DeepSeek-V3, GLM and Llama 3.1 have; some values are not known."""


def test_routing_and_positions_are_read_without_a_remark() -> None:
    model = file_of("qwen3-30B-A3B.model.sh", folder=FOLDER)
    plain = "--moe-router-score-function softmax"
    assert plain in model.text
    routed = LaunchFile(model.name, model.text.replace(plain, " ".join(ROUTED.split())))
    before, after = (read(launch("mixture-30b"), each) for each in (model, routed))
    assert {each.text for each in after.remarks} - {each.text for each in before.remarks} == set()


def test_what_is_given_beside_the_files_wins() -> None:
    for name in ("--rollout-num-gpus-per-engine", "rollout-num-gpus-per-engine"):
        found = read(launch("colocated-4b"), values={name: "4"})
        call = next(c for c in found.placement.calls if c.kind == "generate")
        assert call.parallelism is not None
        assert call.parallelism.tensor_parallel_size == 4


def test_a_launch_of_another_framework_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    [told] = refused(verl)
    starts = "a.sh line 1 starts verl.trainer.main_ppo, which is verl, not slime"
    assert told == f"{starts} (import it as verl@0.9.1)"
    [told] = refused(launch("colocated-4b"), target="verl@0.9.1")
    assert "starts train.py, which is slime, not verl (import it as slime@0.3.1)" in told
    assert (
        "slime is started by a script alone" in refused(LaunchFile("a.yaml", document={"a": 1}))[0]
    )


@pytest.mark.slow
def test_a_plan_is_written_into_a_launch_and_the_rest_stays() -> None:
    file = launch("colocated-4b")
    before = read(file)
    plan = estimate(before.spec, before.placement)
    assert export_into(plan, [file], TARGET).text == file.text
    layout = {"tensor_parallel_size": 4, "data_parallel_size": 2}
    copies = [
        copy.model_copy(update={"layout": copy.layout.model_copy(update=layout)})
        for copy in before.placement.copies
    ]
    of = {copy.id: copy.layout for copy in copies}
    calls = [
        call.model_copy(
            update={"parallelism": of[call.copy_id or ""], "recompute": call.recompute and "none"}
        )
        if call.kind != "generate" and call.copy_id
        else call
        for call in before.placement.calls
    ]
    placement = before.placement.model_copy(update={"copies": copies, "calls": calls})
    written = export_into(estimate(before.spec, placement), [file], TARGET)
    # More weights are on a GPU where the engine's sizes are not those of training.
    assert written.changed == ["--tensor-model-parallel-size", "--sglang-mem-fraction-static"]
    removed = ["--recompute-granularity", "--recompute-method", "--recompute-num-layers"]
    assert written.removed == removed
    left = [line for line in file.text.splitlines() if "recompute" not in line]
    changes = {"tensor-model-parallel-size 2": "tensor-model-parallel-size 4"}
    # It has no tokens that bound the cache; what stays free while it generates is cache as well.
    changes["mem-fraction-static 0.7"] = "mem-fraction-static 0.7361"
    expected = list(left)
    for old, new in changes.items():
        expected = [line.replace(old, new) for line in expected]
    assert written.text.splitlines() == expected


@pytest.mark.slow
def test_advice_is_lines_of_the_launch() -> None:
    file = launch("colocated-4b")
    advice = advise([file], TARGET, Answers("h100", **LENGTHS), time_limit_seconds=5.0)
    assert advice.unfit == []
    assert advice.changes
    assert all(line.key.startswith("--") for change in advice.changes for line in change.lines)
    assert advice.together_seconds is not None
    assert advice.iteration_seconds is not None
    assert advice.together_seconds < advice.iteration_seconds
