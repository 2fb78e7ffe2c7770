"""`automap convert`: the new launch, what is lost, and what cannot be converted."""

import json
from pathlib import Path

import pytest

from automap.planner import Launch, import_launch
from automap.planner.imports import Answers, LaunchFile
from automap.planner.spec import LengthSpec
from automap.planner.studies import carried
from tests.cli.commands import ROOT, call

LAUNCHES = ROOT / "benchmarks" / "launches"
COLOCATED = str(LAUNCHES / "slime" / "colocated-4b.sh")
GRPO = str(LAUNCHES / "grpo-7b.sh")
GIVEN = ("--gpu", "h100", "--lengths", "mean=400", "--prompt-lengths", "mean=200")
TO_VERL = ("--to", "verl@0.9.1")
TO_SLIME = ("--to", "slime@0.3.1")


def test_a_launch_is_the_same_placement_in_the_other_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = call(capsys, "convert", COLOCATED, *TO_VERL, *GIVEN, "--out", str(tmp_path))
    assert code == 0
    assert "to be filled in" in out
    assert "ACTOR_MODEL: /data/Qwen3-4B" in err
    lost = err.partition("lost (slime@0.3.1 -> verl@0.9.1)")[2].partition("\n\n")[0]
    assert "--lr=1e-6" not in lost
    assert "line 84: --lr=1e-6; now actor_rollout_ref.actor.optim.lr=1.0e-06" in err
    assert "--eps-clip-high=0.28; now actor_rollout_ref.actor.clip_ratio_high=0.28" in err
    # What a plan has is in the plan.
    assert "--rollout-batch-size" not in lost
    assert "--colocate" not in lost
    assert "\nnot priced" in err
    lengths = LengthSpec.model_validate({"mean": 400, "max": 10_000})
    said = []
    for target, path in (
        ("slime@0.3.1", Path(COLOCATED)),
        ("verl@0.9.1", tmp_path / "launch.sh"),
    ):
        file = LaunchFile(path.name, path.read_text(encoding="utf-8"))
        answers = Answers("h100", {}, lengths, lengths, {"actor": "qwen3-4b"})
        found = import_launch([file], target, answers)
        said.append(
            [(c.id, c.first_gpu, c.num_gpus, c.layout, c.offload) for c in found.placement.copies]
        )
    assert said[0] == said[1]


def test_a_launch_that_starts_no_framework_itself_is_given_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.sh"
    text = Path(COLOCATED).read_text(encoding="utf-8")
    path.write_text(text.replace("train.py", "mine.py"), encoding="utf-8")
    for command in (("import",), ("advise",), ("convert", "--to", "verl@0.9.1")):
        code, out, err = call(capsys, *command, str(path), *GIVEN)
        assert (code, out) == (2, "")
        assert f"{path}: not imported" in err
        assert "of no framework known here (say of which with --from: " in err
        code, out, err = call(capsys, *command, str(path), *GIVEN, "--from", "slime@0.3.1")
        assert "of no framework" not in err
    code, out, _ = call(capsys, "import", COLOCATED, *GIVEN)
    assert "settings for slime@0.3.1 decide something of a plan" in out


def test_the_launch_that_is_read_is_never_written_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    launch = tmp_path / "launch.sh"
    launch.write_text(Path(COLOCATED).read_text())
    code, out, err = call(capsys, "convert", str(launch), *TO_VERL, *GIVEN, "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert "it is the launch that is read" in err
    assert launch.read_text() == Path(COLOCATED).read_text()


def test_json_is_the_launch_with_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "convert", COLOCATED, *TO_VERL, *GIVEN, "--json")
    found = json.loads(out)
    assert (code, found["target"], found["hazards"]) == (0, "verl@0.9.1", [])
    assert found["had"]["ACTOR_MODEL"] == "/data/Qwen3-4B"
    assert found["said"]["--lr"] == "actor_rollout_ref.actor.optim.lr=1.0e-06"
    # A coefficient of 0 would be no reference to others.
    assert "--kl-loss-coef" not in found["said"]
    lost = {each["key"] for each in found["lost"]}
    assert "--adam-beta2" in lost
    assert not lost & found["said"].keys()
    assert found["script"].startswith("#!/usr/bin/env bash")


def test_a_coefficient_that_decides_whether_there_is_a_reference_is_not_lost_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = ("--from", "trl@1.16.0", "--to", "openrlhf@0.11.2")
    code, out, _ = call(capsys, "convert", str(LAUNCHES / "trl" / "cli.sh"), *to, *GIVEN, "--json")
    found = json.loads(out)
    assert (code, found["said"]["--beta"]) == (0, "--algo.kl.init_coef=0.04")
    assert "KL_COEFFICIENT" not in found["script"]


@pytest.mark.parametrize(
    ("source", "name", "changes", "lost"),
    [
        (
            "openrlhf@0.11.2",
            "openrlhf/hybrid-grpo.sh",
            (("estimator group_norm", "estimator dr_grpo"),),
            {
                "--algo.kl.init_coef": "0.001",
                "--algo.kl.estimator": "k3",
                "--algo.advantage.estimator": "dr_grpo",
            },
        ),
        ("slime@0.3.1", "slime/colocated-4b.sh", (), {"--rm-type": "deepscaler"}),
        (
            "skyrl@0.3.0",
            "skyrl/cispo.sh",
            (),
            {"trainer.algorithm.policy_loss_type": "cispo"},
        ),
    ],
)
def test_what_is_learned_is_said_to_be_lost(
    source: str, name: str, changes: tuple[tuple[str, str], ...], lost: dict[str, str]
) -> None:
    text = (LAUNCHES / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    length = LengthSpec.model_construct(None, **dict.fromkeys(LengthSpec.model_fields))
    length = length.model_copy(update={"mean": 300.0})
    answers = Answers("h100", {}, length, length, {})
    imported = import_launch([LaunchFile("launch.sh", text)], source, answers)
    # Nothing of a plan is there: whatever no plan has is lost.
    launch = Launch(
        target="verl@0.9.1",
        plan="",
        num_nodes=1,
        gpus_per_node=8,
        assumptions=[],
        environment={},
        settings=[],
        placeholders=[],
        script="",
    )
    found = {each.key: each.value for each in carried(imported, launch).lost}
    assert lost.items() <= found.items()
    assert not {"--rollout.batch_size", "--rollout-batch-size"} & found.keys()


def test_what_the_other_cannot_be_told_is_planned_inside_it_or_refused_with_exact(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, "convert", GRPO, *TO_SLIME, *GIVEN, "--exact")
    assert (code, out) == (2, "")
    assert "slime@0.3.1 cannot be told what this launch says" in err
    assert "an engine other than SGLang" in err
    assert "without --exact the plan is written that keeps the most of it" in err
    code, out, err = call(capsys, "convert", GRPO, *TO_SLIME, *GIVEN, "--quiet")
    assert (code, out.startswith("#!/usr/bin/env bash")) == (0, True)
    assert "it generates with sglang, as slime@0.3.1 has no vllm" in err
    assert "copy actor: " in err


OPENRLHF = ("--from", "openrlhf@0.11.2", "--to", "verl@0.9.1")


def nearest(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str]:
    """Key → value of the nearest launch for verl, and what is said beside it."""
    launch = str(LAUNCHES / "openrlhf" / f"{name}.sh")
    code, out, err = call(capsys, "convert", launch, *OPENRLHF, *GIVEN, "--json")
    assert code == 0
    return {each["key"]: each["value"] for each in json.loads(out)["settings"]}, err


def test_the_nearest_launch_changes_only_what_the_other_cannot_be_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    launch = str(LAUNCHES / "openrlhf" / "hybrid-grpo.sh")
    code, _, err = call(capsys, "convert", launch, *OPENRLHF, *GIVEN, "--exact")
    assert (code, "a reference under FSDP that stays on the GPUs" in err) == (2, True)
    found, err = nearest("hybrid-grpo", capsys)
    assert found["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "2"
    assert found["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] == "4"
    assert found["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"] == "8"
    assert found["actor_rollout_ref.actor.fsdp_config.optimizer_offload"] == "True"
    assert (
        "kept of the launch: GPUs and layouts, sharding, micro-batches and recomputation, "
        "engine sizes, cache, offload of what trains\n"
    ) in err
    changes = [line for line in err.splitlines() if line.startswith(("  copy ", "  call "))]
    assert [line.partition(":")[0] for line in changes] == ["  copy actor", "  copy reference"]
    # ZeRO is FSDP there, with the same sizes.
    assert "the nearest that verl@0.9.1 runs" in err


def test_what_cannot_be_kept_is_planned_anew_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    found, err = nearest("every-model-apart", capsys)
    assert "kept of the launch: micro-batches and recomputation, engine sizes" in err
    assert "; planned anew: GPUs and layouts, sharding" in err
    assert found["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "2"
    assert found["trainer.nnodes"] == "4"


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        ("openrlhf@0.11.2", ("--algo.kl.init_coef", "--actor.eps_clip_low_high=0.1 0.2")),
        ("nemo-rl@0.7.0", ("loss_fn.reference_policy_kl_penalty", "loss_fn.ratio_clip_min=0.1")),
        ("trl@1.16.0", ("--beta", "--epsilon=0.1")),
        (
            "skyrl@0.3.0",
            ("trainer.algorithm.kl_loss_coef", "trainer.algorithm.eps_clip_low=0.1"),
        ),
        ("slime@0.3.1", ("--kl-loss-coef", "--eps-clip=0.1")),
        # Its divergence is in the reward, whose coefficient is not the loss's.
        ("areal@1.0.4", ("", "actor.eps_clip=0.1")),
    ],
)
def test_a_usual_launch_of_verl_is_one_of_every_other_framework(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, target: str, keys: tuple[str, str]
) -> None:
    text = Path(GRPO).read_text(encoding="utf-8")
    text = text.replace("kl_loss_coef=0.001", "kl_loss_coef=0.002 algorithm.kl_ctrl.kl_coef=0.5")
    clips = "actor_rollout_ref.actor.clip_ratio_low=0.1"
    path = tmp_path / "verl.sh"
    path.write_text(text.replace("$@", clips), encoding="utf-8")
    to = ("--from", "verl@0.9.1", "--to", target)
    code, out, err = call(capsys, "convert", str(path), *to, *GIVEN, "--json")
    found = json.loads(out)
    assert (code, found["target"]) == (0, target)
    assert "kept of the launch: " in err
    # Of two coefficients the one with effect is said.
    coefficient, clip = keys
    coefficients = found["said"].get("actor_rollout_ref.actor.kl_loss_coef")
    assert coefficients == (f"{coefficient}=0.002" if coefficient else None)
    assert found["had"].get("KL_COEFFICIENT") == (None if coefficient else "0.002")
    assert found["said"]["actor_rollout_ref.actor.clip_ratio_low"] == clip
    lost = {each["key"]: each["value"] for each in found["lost"]}
    assert lost["algorithm.kl_ctrl.kl_coef"] == "0.5"
    assert not lost.keys() & found["said"].keys()
    files = " ".join([found["script"], *found["files"].values()])
    assert ("KL_COEFFICIENT" in files) is not bool(coefficient)
    assert ("0.002" in files) is bool(coefficient)


def test_the_limit_of_an_engines_sequences_stays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It bounds how much cache is used: without it the same cache would be asked for more."""
    path = tmp_path / "verl.sh"
    limits = (
        "actor_rollout_ref.rollout.max_num_seqs=64 "
        "actor_rollout_ref.rollout.max_num_batched_tokens=10240"
    )
    path.write_text(Path(GRPO).read_text(encoding="utf-8").replace("$@", limits), encoding="utf-8")
    for target, key in (
        ("nemo-rl@0.7.0", "policy.generation.vllm_kwargs.max_num_seqs"),
        ("slime@0.3.1", "--sglang-max-running-requests"),
    ):
        code, out, _ = call(
            capsys, "convert", str(path), "--from", "verl@0.9.1", "--to", target, *GIVEN, "--json"
        )
        found = json.loads(out)
        settings = {each["key"]: each["value"] for each in found["settings"]}
        assert (code, settings[key]) == (0, "64")
        assert "10240" in settings.values()
    code, out, _ = call(
        capsys,
        "convert",
        str(path),
        *("--from", "verl@0.9.1", "--to", "openrlhf@0.11.2"),
        *GIVEN,
        "--json",
    )
    lost = {each["key"] for each in json.loads(out)["lost"]}
    assert "actor_rollout_ref.rollout.max_num_seqs" in lost


def test_a_launch_of_an_algorithm_that_the_other_lacks_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = ("--from", "verl@0.9.1", "--to", "trl@1.16.0")
    code, out, err = call(capsys, "convert", str(LAUNCHES / "ppo-critic-7b.sh"), *to, *GIVEN)
    assert (code, out) == (2, "")
    assert "trl@1.16.0 cannot be told what this launch says" in err
    assert "algorithm: it is ppo, and there are grpo, rloo" in err
    assert "search.target" not in err


def test_a_launch_that_does_not_run_as_it_says_is_converted_with_that_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.sh"
    text = Path(COLOCATED).read_text(encoding="utf-8")
    path.write_text(text.replace("train.py", "train_async.py"), encoding="utf-8")
    code, out, err = call(capsys, "convert", str(path), *TO_VERL, *GIVEN)
    assert (code, out.startswith("#!/usr/bin/env bash")) == (3, True)
    assert "does not run as it says" in err
    assert "train_async.py does not start with it" in err


@pytest.mark.parametrize(
    ("launch", "options", "words"),
    [
        (
            GRPO,
            ("--from", "slime@0.3.1", *TO_VERL),
            ("which is verl, not slime", "import it as verl@0.9.1"),
        ),
        (
            COLOCATED,
            ("--from", "slime@0.3.1", "--to", "slime@0.3.1"),
            ("is for slime@0.3.1 already",),
        ),
        (COLOCATED, ("--from", "slime@0.3.1", "--to", "verl@0.9"), ("--to", "verl@0.9.1")),
        (COLOCATED, ("--from", "slimy", "--to", "verl"), ("--from", "slime@0.3.1")),
        (COLOCATED, (*TO_VERL, "--out", __file__), ("it is a file",)),
    ],
)
def test_what_is_no_conversion_is_refused(
    capsys: pytest.CaptureFixture[str],
    launch: str,
    options: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    code, out, err = call(capsys, "convert", launch, *options, *GIVEN)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err


def test_a_recipe_is_converted_to_and_fro(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recipe = str(LAUNCHES / "nemo_rl" / "qwen-7b-megatron.yaml")
    verl = ("--from", "nemo-rl@0.7.0", "--to", "verl@0.9.1", *GIVEN, "--out", str(tmp_path))
    assert call(capsys, "convert", recipe, *verl)[0] == 0
    back = ("--from", "verl@0.9.1", "--to", "nemo-rl@0.7.0", *GIVEN, "--model", "actor=qwen2.5-7b")
    launch = str(tmp_path / "launch.sh")
    there = tmp_path / "back"
    code, out, _ = call(capsys, "convert", launch, *back, "--out", str(there))
    assert code == 0
    written = (there / "recipe.yaml").read_text(encoding="utf-8")
    assert "tensor_model_parallel_size: 4" in written
    assert "examples/run_grpo.py" in (there / "launch.sh").read_text(encoding="utf-8")
    again = str(there / "recipe.yaml"), "--model", "actor=qwen2.5-7b"
    code, out, _ = call(capsys, "import", *again, *GIVEN, "--quiet")
    assert (code, "per iteration" in out) == (0, True)
    plan_of_it = ("convert", str(there / "launch.sh"), *back, "--quiet")
    assert call(capsys, *plan_of_it)[0] == 2, "the script is NeMo-RL's now"


def test_numbers_are_those_of_the_engine_that_trains_and_schedules_are_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (LAUNCHES / "nemo_rl" / "qwen-7b-megatron.yaml").read_text(encoding="utf-8")
    kwargs = "policy:\n  optimizer:\n    kwargs:\n      lr: 5.0e-6\n"
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace("policy:\n", kwargs, 1), encoding="utf-8")
    to = ("--from", "nemo-rl@0.7.0", "--to", "verl@0.9.1")
    code, out, _ = call(capsys, "convert", str(path), *to, *GIVEN, "--json")
    found = json.loads(out)
    assert code == 0
    assert "policy.optimizer.kwargs.lr" not in found["said"]
    rate = found["said"]["policy.megatron_cfg.optimizer.lr"]
    assert rate.startswith("actor_rollout_ref.actor.optim.lr=")
    assert "5.0e-06" not in rate
    launch = tmp_path / "verl.sh"
    for schedule, told in (
        ("", True),
        ("actor_rollout_ref.actor.optim.lr_scheduler_type=cosine", False),
    ):
        script = Path(GRPO).read_text(encoding="utf-8").replace("$@", schedule)
        launch.write_text(script, encoding="utf-8")
        to = ("--from", "verl@0.9.1", "--to", "trl@1.16.0")
        code, out, _ = call(capsys, "convert", str(launch), *to, *GIVEN, "--json")
        settings = {each["key"]: each["value"] for each in json.loads(out)["settings"]}
        assert (settings.get("--lr_scheduler_type") == "constant") is told


@pytest.mark.parametrize(
    ("target", "estimator", "told"),
    [
        ("trl@1.16.0", "rloo", {"KL": "--beta=0.003", "schedule": "constant_with_warmup"}),
        (
            "nemo-rl@0.7.0",
            "grpo",
            {
                "KL": "loss_fn.reference_policy_kl_penalty=0.003",
                "average": "loss_fn.token_level_loss=false",
            },
        ),
        (
            "slime@0.3.1",
            "grpo",
            {"KL": "--kl-coef=0.003", "average": "--calculate-per-token-loss=False"},
        ),
    ],
)
def test_the_rewards_coefficient_averages_and_warm_ups_are_carried(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    target: str,
    estimator: str,
    told: dict[str, str],
) -> None:
    text = Path(GRPO).read_text(encoding="utf-8")
    actor = "actor_rollout_ref.actor"
    more = (
        f"algorithm.kl_ctrl.kl_coef=0.003 {actor}.loss_agg_mode=seq-mean-token-mean "
        f"{actor}.optim.lr_warmup_steps=5"
    )
    for old, new in (
        ("use_kl_loss=True", "use_kl_loss=False"),
        ("use_kl_in_reward=False", "use_kl_in_reward=True"),
        ("adv_estimator=grpo", f"adv_estimator={estimator}"),
        ("$@", more),
    ):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "verl.sh"
    path.write_text(text, encoding="utf-8")
    to = ("--from", "verl@0.9.1", "--to", target)
    code, out, _ = call(capsys, "convert", str(path), *to, *GIVEN, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["said"]["algorithm.kl_ctrl.kl_coef"] == told["KL"]
    assert found["said"].get(f"{actor}.loss_agg_mode") == told.get("average")
    lost = {each["key"] for each in found["lost"]}
    assert (f"{actor}.loss_agg_mode" in lost) is ("average" not in told)
    assert (f"{actor}.optim.lr_warmup_steps" in lost) is target.startswith("nemo-rl")
    settings = {each["key"]: each["value"] for each in found["settings"]}
    assert settings.get("--lr_scheduler_type") == told.get("schedule")
    assert "per-token-loss" not in found["script"]


def test_a_switch_that_is_carried_stands_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "verl.sh"
    average = "actor_rollout_ref.actor.loss_agg_mode=token-mean"
    path.write_text(Path(GRPO).read_text(encoding="utf-8").replace("$@", average), encoding="utf-8")
    to = ("--from", "verl@0.9.1", *TO_SLIME)
    found = json.loads(call(capsys, "convert", str(path), *to, *GIVEN, "--json")[1])
    assert "\n  --calculate-per-token-loss\n" in found["script"]
