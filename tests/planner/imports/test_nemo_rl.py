"""Launches of NeMo-RL: what they say, what is asked for, and exports that are read back."""

from typing import Any

import pytest

from automap.planner import NotImportableError, Plan, export_into
from automap.planner.errors import InfeasibleError
from automap.planner.exports.exporting import export
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.imports import WANTED, imported
from benchmarks.launch_corpus import NEMO_RL as FOLDER
from benchmarks.launch_corpus import SLIME, corpus, file_of
from tests.helpers.framework_plans import plan_of
from tests.helpers.nemo_rl_plans import SAMPLE, product, recipe_file
from tests.planner.imports.corpus_reader import Corpus, document
from tests.planner.imports.test_round_trip import said

TARGET = "nemo-rl@0.7.0"
CORPUS = Corpus(TARGET, FOLDER, mean=400.0)
LENGTHS = CORPUS.lengths
launch, read = CORPUS.launch, CORPUS.read
FAILS = "does not fit"


def refused(*files: LaunchFile, target: str = TARGET) -> list[str]:
    with pytest.raises(NotImportableError) as caught:
        import_launch(files, target, Answers("h100", **LENGTHS))
    assert any(reason.remedy for reason in caught.value.reasons)
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
    alone = [recipe_file(written)]
    found = import_launch(alone, TARGET, answers)
    assert said(found.placement) == said(plan)
    # NeMo-RL is told of no seconds.
    left = {"environment_seconds_per_turn", "checkpoint_seconds"}
    assert found.spec.workload.model_dump(exclude=left) == workload.model_dump(exclude=left)
    assert found.spec.algorithm == plan.spec.algorithm
    assert found.spec.search.staleness == plan.spec.search.staleness
    assert [each for each in found.remarks if each.kind != "assumed"] == []
    script = LaunchFile("launch.sh", written.script)
    assert import_launch([script, *alone], TARGET, answers).placement == found.placement
    again = estimate(found.spec, found.placement)
    assert hazards(found, again) == []
    assert (
        export(again, TARGET, spare_cache=False).settings == written.settings or workload.turns > 1
    )


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
    launches = corpus("nemo-rl")
    assert len(launches) >= 22
    alone = {each.name: imported(each, target=TARGET) for each in launches}
    asked = {name for name, found in alone.items() if isinstance(found, list)}
    assert len(asked) <= (1 - WANTED) * len(launches), asked
    assert asked == {each.name for each in launches if each.help}
    for each in launches:
        assert isinstance(imported(each, each.help, TARGET), Imported)


def test_a_launch_says_its_placement() -> None:
    found = read(launch("async-two-nodes.yaml"))
    copies = {c.id: (c.first_gpu, c.num_gpus, c.offload) for c in found.placement.copies}
    assert copies == {
        "actor": (0, 8, "none"),
        "reference": (0, 8, "weights"),
        "actor.shadow": (8, 8, "none"),
    }
    assert found.spec.search.staleness == 2
    split = read(launch("apart-one-node.yaml")).placement
    assert {c.id: c.num_gpus for c in split.copies}["actor.shadow"] == 2
    together = read(launch("own-base.yaml"))
    [actor] = [copy for copy in together.placement.copies if copy.id == "actor"]
    assert (actor.num_gpus, actor.offload, actor.layout.sharding) == (8, "weights", "full")
    assert read(launch("dapo.yaml")).spec.workload.expected_acceptance == pytest.approx(1 / 3)
    assert "reference" not in read(launch("dapo.yaml")).spec.models


def test_configurations_inherit_and_the_last_one_counts() -> None:
    files = [
        file_of(f"{n}.yaml", folder=FOLDER) for n in ("inherits-twice", "own-middle", "own-base")
    ]
    found = read(*files)
    [actor] = [copy for copy in found.placement.copies if copy.id == "actor"]
    layout = actor.layout
    assert (layout.tensor_parallel_size, layout.context_parallel_size) == (4, 2)
    where = {each.key: (each.file, each.line) for each in found.settings}
    assert where["policy.max_total_sequence_length"] == ("inherits-twice.yaml", 4)
    assert where["policy.model_name"] == ("own-middle.yaml", 4)
    # Base × middle: 16384 tokens × 1 sequence.
    assert found.values["policy.sequence_packing.train_mb_tokens"] == 16384
    [asked] = [each for each in refused(*files[:2]) if "'own-base' (line 2) is not among" in each]
    assert "grpo_math_1B" in asked
    circle = document("defaults: b.yaml\n"), document("defaults: a.yaml\n", "b.yaml")
    assert any("inherit in a circle" in each for each in refused(*circle))


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("${mul:${policy.max_total_sequence_length}, 3}", 3 * 4096),
        ("${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}", 4 * 4096),
        ("${max:8192, ${div:${policy.max_total_sequence_length}, 2}}", 8192),
        ("${policy.max_total_sequence_length}", 4096),
        ("${oc.env:TOKENS}", 9000),
        ("${oc.env:OTHER,7000}", 7000),
    ],
)
def test_references_between_keys_are_followed(written: str, tokens: int) -> None:
    key = "policy.sequence_packing.train_mb_tokens"
    text = f"    train_mb_tokens: '{written}'\n"
    change = ("cluster:", f"  sequence_packing:\n{text}cluster:")
    file = launch("model-not-known.yaml", change, ("our-sft-7b", "Qwen2.5-7B"))
    assert read(file, values={"TOKENS": "9000"}).values[key] == tokens


def test_what_only_a_machine_knows_is_asked_for() -> None:
    change = ("gpus_per_node: 8", "gpus_per_node: '${oc.env:GPUS}'")
    found = refused(launch("tensor-8-dtensor.yaml", change))
    [asked] = [each for each in found if "cluster.gpus_per_node (line 13) is" in each]
    assert "--set GPUS=" in asked
    loop = ("max_total_sequence_length: 4096", "max_total_sequence_length: ${policy.logprob_x}")
    assert any("logprob_x" in each for each in refused(launch("tensor-8-dtensor.yaml", loop)))
    itself = ("length: 4096", "length: ${policy.max_total_sequence_length}")
    assert refused(launch("tensor-8-dtensor.yaml", itself))


@pytest.mark.parametrize(
    ("name", "before", "after", "words"),
    [
        ("reinforce", "{name: reinforce_plus_plus", "{name: gae", "known: grpo"),
        ("cache-in-bytes", "model_parallel_size: 8", "model_parallel_size: 3", "do not divide"),
        ("cache-in-bytes", "model_parallel_size: 8", "model_parallel_size: two", "no whole number"),
        ("cache-in-bytes", "{tensor_parallel_size: 4", "{tensor_parallel_size: 5", "engines of 5"),
        ("mixture-replicas", "  expert_parallel_size: 8", "  expert_parallel_size: 3", "multiple"),
        ("qwen-7b-megatron", "batch_size: 512", "batch_size: 500", "does not divide 512"),
        ("own-base", "backend: vllm", "backend: sglang", "known: vllm"),
        ("apart-one-node", "gpus_per_node: 2", "gpus_per_node: 8", "none are left to train"),
        ("apart-one-node", "        gpus_per_node: 2", "        num_nodes: 1", "is not set"),
        ("own-base", "precision: bfloat16", "precision: int4", "known: bfloat16"),
    ],
)
def test_what_cannot_be_is_refused_by_key(name: str, before: str, after: str, words: str) -> None:
    assert any(words in each for each in refused(launch(f"{name}.yaml", (before, after))))


ON, OFF = "enabled: true", "enabled: false"


@pytest.mark.parametrize(
    ("name", "before", "after", "kind", "words"),
    [
        ("tensor-8-dtensor", "logprob_batch_size: 1", "logprob_batch_size: 4", FAILS, "the same"),
        ("async-two-nodes", "async_engine: true", "async_engine: false", FAILS, "engine as here"),
        ("async-two-nodes", "     gpus_per_node: 8", "     gpus_per_node: 4", FAILS, "whole nodes"),
        ("own-base", f"{OFF}\n    activation", f"{ON}\n    activation", FAILS, "both are on"),
        ("own-base", f"batching:\n    {OFF}", f"batching:\n    {ON}", FAILS, "are both on"),
        ("own-base", "cpu_offload: false", "cpu_offload: true", "saves memory", "Adam on the host"),
        ("own-base", "logprob_batch_size", "logprob_batchsize", FAILS, "mean policy.logprob_batch"),
        ("own-base", "generation_batch_size: 32", "fsdp_offload_enabled: x", "replaced", "offload"),
        ("script-alone", "micro_batch_size=2", "microbatch_size=2", FAILS, "did you mean"),
        (
            "script-alone",
            "cluster.gpus_per_node=8",
            "cluster.gpus_per_node=8 cluster.gpus_per_node=4",
            "contradiction",
            "comes twice",
        ),
    ],
)
def test_what_is_odd_is_said(name: str, before: str, after: str, kind: str, words: str) -> None:
    file = launch(f"{name}.{'sh' if name == 'script-alone' else 'yaml'}", (before, after))
    odd = [each for each in read(file).remarks if each.kind != "assumed"]
    assert any(words in each.text and each.kind == kind and each.line for each in odd), odd


@pytest.mark.parametrize("name", ["own-base.yaml", "script-alone.sh"])
def test_usual_launches_are_known_key_by_key(name: str) -> None:
    odd = [each.text for each in read(launch(name)).remarks if each.kind != "assumed"]
    assert odd == ["validation runs, which no price has"]


def test_what_is_given_beside_the_files_wins() -> None:
    found = read(
        launch("script-alone.sh"),
        values={"policy.generation.vllm_cfg.tensor_parallel_size": "2", "NUM_NODES": "2"},
    )
    call = next(c for c in found.placement.calls if c.kind == "generate")
    assert call.parallelism is not None
    assert call.parallelism.tensor_parallel_size == 2
    assert found.placement.copies[0].num_gpus == 16


@pytest.mark.parametrize("again", [False, True])
def test_weights_in_flight_are_continuous_rollouts(again: bool) -> None:
    search = read(launch("async-two-nodes.yaml")).spec.search
    assert search.staleness
    assert not search.continuous_rollouts
    keys = ("in_flight_weight_updates", "recompute_kv_cache_after_weight_updates")
    values = dict.fromkeys((f"grpo.async_grpo.{key}" for key in keys), "true")
    values[f"grpo.async_grpo.{keys[1]}"] = str(again).lower()
    search = read(launch("async-two-nodes.yaml"), values=values).spec.search
    assert search.continuous_rollouts
    assert search.keep_cache_at_sync is not again


def test_a_command_for_the_scheduler_is_read() -> None:
    found = read(launch("slurm-command.sh"), launch("async-two-nodes.yaml"))
    assert found.spec.workload.prompts_per_iteration == 128
    assert (found.file, found.line) == ("slurm-command.sh", 5)


def test_a_launch_of_another_framework_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    starts = "a.sh line 1 starts verl.trainer.main_ppo, which is verl, not nemo-rl"
    assert refused(verl) == [f"{starts} (import it as verl@0.9.1)"]
    slime = file_of("colocated-4b.sh", folder=SLIME)
    assert "which is slime, not nemo-rl (import it as slime@0.3.1)" in refused(slime)[0]
    for target, other in (("verl@0.9.1", "verl"), ("slime@0.3.1", "slime")):
        for file in (launch("script-alone.sh"), launch("own-base.yaml")):
            [told] = refused(file, target=target)
            assert f"which is nemo-rl, not {other} (import it as {TARGET})" in told
    configuration = LaunchFile("a.yaml", document={"actor_rollout_ref": {"model": {"path": "x"}}})
    assert "a.yaml has the section actor_rollout_ref, which is verl" in refused(configuration)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("uv run examples/run_ppo.py --config x.yaml\n", "run_ppo.py, which is not read"),
        ("uv run examples/run_sft.py --config x.yaml\n", "run_sft.py, which is not read"),
        ("uv run examples/run_grpo.py --config x.yaml\n", "'x' (line 1) is not among the files"),
        ("uv run examples/run_dapo.py\n", "no command starts examples/run_grpo.py"),
        ('COMMAND="$(cat command)" sbatch ray.sub\n', "no command starts"),
        ("uv run examples/run_grpo.py\n", "policy.model_name is not set"),
    ],
)
def test_scripts_without_a_job_that_is_read_are_refused(text: str, words: str) -> None:
    assert any(words in each for each in refused(LaunchFile("a.sh", text)))


@pytest.mark.parametrize("document", [None, 3, [], "text", {}, {"defaults": 3}, {"policy": 4}])
def test_documents_that_are_no_configuration_are_refused(document: Any) -> None:
    assert refused(LaunchFile("a.yaml", document=document))


@pytest.mark.slow
def test_a_plan_is_written_into_a_script_and_the_rest_stays() -> None:
    file = launch("script-alone.sh")
    before = read(file)
    plan = estimate(before.spec, before.placement)
    assert export_into(plan, [file], TARGET).text == file.text
    calls = [
        call.model_copy(update={"recompute": "full"}) if call.kind == "train" else call
        for call in before.placement.calls
    ]
    placement = before.placement.model_copy(update={"calls": calls})
    written = export_into(estimate(before.spec, placement), [file], TARGET)
    assert written.added == ["policy.dtensor_cfg.activation_checkpointing"]
    assert (written.changed, written.removed) == ([], [])
    added = "    policy.dtensor_cfg.activation_checkpointing=true"
    assert added in [line.removesuffix(" \\") for line in written.text.splitlines()]
    assert set(file.text.splitlines()) <= {*written.text.splitlines()}
    alone = launch("small-base.yaml")
    found = read(alone)
    other = found.placement.model_copy(
        update={
            "calls": [
                c.model_copy(update={"recompute": "full"}) if c.kind == "train" else c
                for c in found.placement.calls
            ]
        }
    )
    with pytest.raises(NotImportableError, match="only scripts are written again") as caught:
        export_into(estimate(found.spec, other), [alone], TARGET)
    assert "activation_checkpointing=true" in (caught.value.reasons[0].remedy or "")


@pytest.mark.slow
def test_advice_is_keys_of_the_launch() -> None:
    file = launch("qwen-7b-megatron.yaml")
    advice = advise([file], TARGET, Answers("h100", **LENGTHS), time_limit_seconds=5.0)
    assert advice.unfit == []
    assert advice.changes
    assert all("." in line.key for change in advice.changes for line in change.lines)
    assert advice.together_seconds is not None
    assert advice.iteration_seconds is not None
    assert advice.together_seconds < advice.iteration_seconds
