"""Launches of AReaL: what they say, what is asked for, and exports that are read back."""

import pytest

from automap.planner import export_into
from automap.planner.exports.exporting import export
from automap.planner.frameworks import framework
from automap.planner.imports.importing import hazards, import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.planning import estimate
from automap.planner.studies.advice import advise
from benchmarks.launch_corpus import AREAL as FOLDER
from tests.helpers.areal_plans import SAMPLE, plan_of
from tests.planner.imports.corpus_reader import Corpus, document
from tests.planner.imports.test_round_trip import said

TARGET = "areal@1.0.4"
CORPUS = Corpus(TARGET, FOLDER)
LENGTHS = CORPUS.lengths
launch, read, refused = CORPUS.launch, CORPUS.read, CORPUS.refused


@pytest.mark.slow
def test_nine_in_ten_launches_are_imported_without_help_and_all_with_it() -> None:
    CORPUS.helped()


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_an_export_is_read_back_and_exported_again_as_it_was(name: str) -> None:
    plan = plan_of(SAMPLE[name])
    workload = plan.spec.workload
    models = {
        role: model.architecture
        for role, model in plan.spec.models.items()
        if model.architecture is not None and role != "reference"
    }
    answers = Answers("h100", {}, workload.prompt_length, workload.response_length, models)
    before = export(plan, TARGET, spare_cache=False)
    file = document(before.files["areal.yaml"], "areal.yaml")
    found = import_launch([file], TARGET, answers)
    assert said(found.placement) == said(plan)
    # AReaL is told of no seconds.
    left = {"checkpoint_seconds"}
    assert found.spec.workload.model_dump(exclude=left) == workload.model_dump(exclude=left)
    assert found.spec.algorithm == plan.spec.algorithm
    assert found.spec.search.staleness == plan.spec.search.staleness
    assert [each for each in found.remarks if each.kind != "assumed"] == []
    script = LaunchFile("launch.sh", before.script)
    assert import_launch([script, file], TARGET, answers).placement == found.placement
    again = estimate(found.spec, found.placement)
    assert hazards(found, again) == []
    after = export(again, TARGET, spare_cache=False)
    assert [(e.key, e.value) for e in after.settings] == [(e.key, e.value) for e in before.settings]


def test_models_are_where_their_strategies_put_them() -> None:
    def ranges(name: str) -> dict[str, tuple[int, int]]:
        copies = read(launch(name)).placement.copies
        return {copy.id: (copy.first_gpu, copy.num_gpus) for copy in copies}

    assert ranges("ppo.yaml") == {
        "actor": (0, 4),
        "reference": (0, 4),
        "critic": (0, 4),
        "actor.shadow": (4, 4),
    }
    assert ranges("ppo-critic-apart.yaml")["critic"] == (8, 8)
    apart = ranges("reference-apart.yaml")
    assert (apart["reference"], apart["actor.shadow"]) == ((8, 8), (16, 8))
    together = read(launch("colocated.yaml")).placement
    [actor] = together.copies
    assert (actor.num_gpus, actor.offload) == (8, "weights")


def test_sizes_are_those_of_the_backends() -> None:
    def layout(name: str, copy: str = "actor") -> str:
        copies = {each.id: each for each in read(launch(name)).placement.copies}
        return f"{copies[copy].layout.in_short()} {copies[copy].layout.sharding}"

    assert layout("grpo-pipeline-32b.yaml") == "tp4 pp4x2 dp2 optimizer"
    assert layout("mixture-30b.yaml") == "tp2 pp2 dp4 ep4 optimizer"
    assert layout("mixture-plain-sizes.yaml") == "tp4 dp2 ep4 optimizer"
    assert layout("long-context.yaml") == "tp1 cp2 dp4 full"
    assert layout("grpo-llama-8b.yaml", "actor.shadow") == "tp2 dp2 none"
    experts = read(launch("experts.sh"), launch("mixture-30b.yaml")).placement
    assert experts.copies[0].layout.expert_parallel_size == 8


def test_overrides_references_and_defaults_count() -> None:
    found = read(launch("ray-two-nodes.sh"), launch("small.yaml"))
    assert found.spec.workload.prompts_per_iteration == 128
    assert found.spec.models["actor"].architecture == "qwen2.5-7b"
    assert found.spec.search.staleness == 2
    workload = read(launch("inherits.yaml"), launch("small.yaml")).spec
    assert workload.search.staleness == 4
    critic = read(launch("ppo.yaml"))
    sizes = {c.id: c.micro_batch_size for c in critic.placement.calls if c.role == "critic"}
    actor = next(c for c in critic.placement.calls if c.id == "actor.train")
    # Through `mb_spec: ${actor.mb_spec}`.
    assert set(sizes.values()) == {actor.micro_batch_size}
    tokens = {"actor.mb_spec.max_tokens_per_mb": "2100"}
    smaller = read(launch("grpo-fsdp.yaml"), values=tokens).placement
    first, other = (
        next(c.micro_batch_size for c in each.calls if c.id == "actor.train")
        for each in (smaller, read(launch("grpo-fsdp.yaml")).placement)
    )
    assert first is not None
    assert other is not None
    assert first < other
    left = document(
        "actor: {backend: 'fsdp:d4', path: Qwen/Qwen2.5-7B}\nrollout: {backend: 'vllm:d4'}\n"
        "gconfig: {n_samples: 2}\ntrain_dataset: {batch_size: 8}\n"
    )
    spec = read(left).spec
    assert (spec.algorithm, spec.workload.updates_per_epoch) == ("reinforce_plus_plus", 4)
    assert spec.workload.old_log_probs == "rollout"
    assert spec.workload.response_length.max_tokens == 16384


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('backend: "fsdp:d4"', 'backend: "fsdp:d4p2"'), "fsdp has sizes d, t and c"),
        (('backend: "fsdp:d4"', 'backend: "deepspeed:d4"'), "known: fsdp, megatron, archon"),
        (('backend: "fsdp:d4"', 'backend: "d4"'), "known: fsdp"),
        (('backend: "fsdp:d4"', 'backend: ""'), "actor.backend"),
        (('backend: "sglang:d4"', 'backend: "sglang:d4p2"'), "in pipeline stages"),
        (
            ('backend: "fsdp:d4"', 'backend: "megatron:(attn:d4|ffn:d3e2)"'),
            "experts on 6 GPUs, attention on 4",
        ),
        (("target: actor", "target: teacher"), "not started before it"),
        (("type: colocation", "type: together"), "known: separation, colocation"),
        (("n_samples: 4", "n_samples: 1"), "more than 1"),
        (("ppo_n_minibatches: 4", "ppo_n_minibatches: four"), "no whole number"),
        (("dtype: bfloat16", "dtype: int8"), "actor.dtype"),
        (("max_head_offpolicyness: 2", "max_head_offpolicyness: 999"), "at most 16"),
    ],
)
def test_what_cannot_be_is_refused_by_key_and_line(change: tuple[str, str], words: str) -> None:
    kl = ("kl_ctl: 0.0", "kl_ctl: 0.1")
    assert any(words in each for each in refused(launch("grpo-fsdp.yaml", kl, change)))


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (
            [("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  group_size: 4")],
            "does not fit",
            "gconfig.n_samples",
        ),
        ([("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  mini_batches: 4")], "does not fit", "no key of"),
        ([("  kl_ctl: 0.0", "  kl_ctl: 0.0\n  use_lora: true")], "priced otherwise", "LoRA"),
        ([("max_tokens_per_mb: 10240", "max_tokens_per_mb: 512")], "contradiction", "goes alone"),
        ([("n_gpus_per_node: 8", "n_gpus_per_node: 4")], "does not fit", "1 × 4"),
        (
            [("consumer_batch_size: ${train_dataset.batch_size}", "consumer_batch_size: 64")],
            "contradiction",
            "bounded by",
        ),
        ([("kl_ctl: 0.0", "kl_ctl: 0.0")], "without effect", "no effect with actor.kl_ctl 0"),
        (
            [
                ("kl_ctl: 0.0", "kl_ctl: 0.1"),
                ("optimizer: null", "optimizer: null\n  offload: true"),
            ],
            "does not fit",
            "enable_offload: true",
        ),
    ],
)
def test_what_is_odd_is_said(changes: list[tuple[str, str]], kind: str, words: str) -> None:
    found = read(launch("grpo-fsdp.yaml", *changes)).remarks
    assert any(words in each.text for each in found if each.kind == kind), found


def test_rollouts_that_are_ahead_never_drain_and_no_more_are_in_flight_than_it_says() -> None:
    def found(*changes: tuple[str, str]) -> Imported:
        return read(launch("grpo-fsdp.yaml", *changes))

    search = found().spec.search
    assert search.staleness == 2
    assert search.continuous_rollouts
    assert not search.keep_cache_at_sync
    few = found(("consumer_batch_size:", "max_concurrent_rollouts: 8\n  consumer_batch_size:"))
    assert few.cache_bytes == found().cache_bytes
    told = [each.text for each in few.remarks if "max_concurrent_rollouts" in each.text]
    assert len(told) == 1
    assert "priced with the" in told[0]
    used = [
        next(c.kv_cache_bytes for c in each.placement.calls if c.kv_cache_bytes)
        for each in (few, found())
    ]
    assert used[0] is not None
    assert used[1] is not None
    assert used[0] < used[1]


def test_colocated_rollouts_need_engines_of_one_gpu_and_a_disk() -> None:
    two = ('backend: "sglang:d8"', 'backend: "sglang:d4t2"')
    assert any(
        "engines that generate are of one GPU" in each
        for each in refused(launch("colocated.yaml", two))
    )
    found = read(launch("colocated.yaml", ("weight_update_mode: disk", "weight_update_mode: xccl")))
    assert any("other than disk" in each.text for each in found.remarks)
    assert any("pass through a disk" in each.text for each in found.remarks)
    whole = read(launch("colocated.yaml"))
    assert hazards(whole, estimate(whole.spec, whole.placement)) == []


def test_a_launch_of_another_framework_or_version_is_named() -> None:
    verl = LaunchFile("a.sh", "python3 -m verl.trainer.main_ppo data.train_batch_size=1\n")
    assert "which is verl, not areal (import it as verl@0.9.1)" in refused(verl)[0]
    nemo = LaunchFile("a.sh", "uv run examples/run_grpo.py --config recipe.yaml\n")
    assert "which is nemo-rl, not areal" in refused(nemo)[0]
    ours = launch("grpo-fsdp.yaml")
    [told] = refused(ours, target="nemo-rl@0.7.0")
    assert "which is areal, not nemo-rl (import it as areal@1.0.4)" in told
    [told] = refused(launch("local.sh"), launch("small.yaml"), target="openrlhf@0.11.2")
    assert "which is areal, not openrlhf" in told
    old = document("allocation_mode: sglang:d4+fsdp:d4\nactor: {path: Qwen/Qwen2.5-7B}\n")
    [told] = refused(old)
    assert "allocation_mode (a.yaml line 1) is an earlier version's than 1.0.4" in told
    assert "give actor.backend" in told
    text = "python3 -m areal.launcher.ray train.py --config small.yaml\n"
    assert any(
        "an earlier version's" in e for e in refused(LaunchFile("a.sh", text), launch("small.yaml"))
    )


@pytest.mark.slow
def test_a_plan_is_written_into_a_launch_and_the_rest_stays() -> None:
    smaller = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct")
    files = [launch("ray-two-nodes.sh", smaller), launch("small.yaml")]
    before = read(*files)
    plan = estimate(before.spec, before.placement)
    assert export_into(plan, files, TARGET).text == files[0].text
    calls = [
        call.model_copy(update={"recompute": "none"}) if call.kind == "train" else call
        for call in before.placement.calls
    ]
    placement = before.placement.model_copy(update={"calls": calls})
    written = export_into(estimate(before.spec, placement), files, TARGET)
    assert "actor.gradient_checkpointing=false" in written.text
    again = read(LaunchFile(files[0].name, written.text), files[1])
    assert next(c.recompute for c in again.placement.calls if c.kind == "train") == "none"


@pytest.mark.slow
def test_advice_is_lines_of_the_launch() -> None:
    files = [launch("grpo-synchronous.yaml")]
    advice = advise(files, TARGET, Answers("h100", **LENGTHS), time_limit_seconds=5.0)
    keys = {line.name for change in advice.changes for line in change.lines}
    assert keys
    assert keys <= {key for each in framework(TARGET).settings for key in each.keys.values()}
