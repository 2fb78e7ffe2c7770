"""`automap advise`: what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, call

GRPO = ROOT / "benchmarks" / "launches" / "grpo-7b.sh"
GIVEN = ("--gpu", "h100", "--lengths", "mean=300", "--prompt-lengths", "mean=120")


@pytest.mark.slow
def test_advice_is_lines_to_change_with_what_they_are_worth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, "advise", str(GRPO), *GIVEN)
    assert (code, err) == (0, "")
    assert out.startswith(f"{GRPO} line 3: ")
    key = "actor_rollout_ref.rollout.tensor_model_parallel_size"
    assert f"{GRPO}:24: {key}=2 -> {key}=1" in out
    assert "add: actor_rollout_ref.rollout.max_num_seqs=" in out
    assert "1. cache and concurrent sequences: saves " in out
    # The cache itself saves nothing, and is left as it is; 8 bits are not asked for.
    assert "kv_cache_memory_bytes" not in out
    assert "8-bit rollouts" not in out
    assert "chance of running out of memory" in out
    assert out.splitlines()[-1].startswith("together ")
    code, brief, _ = call(capsys, "advise", str(GRPO), *GIVEN, "--quiet")
    assert brief == out.splitlines()[-1] + "\n"
    asked = call(capsys, "advise", str(GRPO), *GIVEN, "--allow-learning-changes")[1]
    assert "8-bit rollouts: saves " in asked
    assert "changes what is learned: responses are of weights with 8 bits" in asked


@pytest.mark.slow
def test_an_argument_that_is_not_there_is_not_to_be_added_without_a_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    launch = str(ROOT / "benchmarks" / "launches" / "openrlhf" / "hybrid-ppo.sh")
    code, out, _ = call(capsys, "advise", launch, *GIVEN)
    assert (code, "add: --ds.ring_attn_size 2" in out) == (0, True)
    assert "add:\n" not in out.replace("add: \n", "add:\n")
    assert "--train.max_tokens_per_gpu" not in out


@pytest.mark.slow
def test_seconds_are_said_to_be_without_what_is_not_priced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = ROOT / "benchmarks" / "launches" / "openrlhf" / "hybrid-grpo.sh"
    text = name.read_text("utf-8")
    launch = tmp_path / "launch.sh"
    for argument in ("", "--ds.adam_offload", "--vllm.enforce_eager"):
        launch.write_text(text.replace("--ds.zero_stage", f"{argument} --ds.zero_stage"), "utf-8")
        out = call(capsys, "advise", str(launch), *GIVEN)[1]
        assert (", all without what is not priced" in out) is bool(argument)
        assert argument in out


@pytest.mark.slow
def test_advice_as_json_has_every_line_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "advise", str(GRPO), *GIVEN, "--json", "--at-least", "0.06")
    found = json.loads(out)
    assert code == 0
    assert found["schema_version"] == 1
    assert found["target"] == "verl@0.9.1"
    assert found["least_share"] == 0.06
    assert all(change["gain_share"] >= 0.06 for change in found["changes"])
    lines = [line for change in found["changes"] for line in change["lines"]]
    assert {"key", "before", "after", "file", "line"} == set(lines[0])


@pytest.mark.slow
def test_what_does_not_fit_comes_first_and_no_effect_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = GRPO.read_text(encoding="utf-8")
    for old, new in (
        ("ppo_micro_batch_size_per_gpu=32", "ppo_micro_batch_size_per_gpu=256"),
        ("enable_gradient_checkpointing=True", "enable_gradient_checkpointing=False"),
        ("ref.fsdp_config.param_offload=True", "ref.fsdp_config.param_offload=False"),
    ):
        assert old in text
        text = text.replace(old, new)
    launch = tmp_path / "launch.sh"
    launch.write_text(text, encoding="utf-8")
    code, out, _ = call(capsys, "advise", str(launch), *GIVEN)
    assert code == 0
    first, second = out.splitlines()[:2]
    assert first == f"{launch} line 3: does not fit"
    assert second.startswith("  actor.train")
    assert "GiB" in second
    assert "ref.fsdp_config.param_offload has no effect" in out
    assert "with it it fits" in out


def test_what_is_missing_or_unknown_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "advise", str(GRPO), "--gpu", "h100")
    assert (code, out) == (2, "")
    assert "--lengths mean=" in err
    code, out, err = call(capsys, "advise", str(GRPO), *GIVEN, "--from", "verl@9")
    assert (code, out) == (2, "")
    assert "--from" in err
    assert "verl@0.9.1" in err
    code, out, err = call(capsys, "advise", "no-such-file.sh", *GIVEN)
    assert (code, out) == (2, "")


@pytest.mark.slow
def test_a_critic_with_one_budget_is_told_two_numbers_of_sequences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    launch = ROOT / "benchmarks" / "launches" / "ppo-critic-7b.sh"
    found = json.loads(call(capsys, "advise", str(launch), *GIVEN, "--json")[1])
    assert found["hazards"] == []
    assert found["together_seconds"] == pytest.approx(found["best_seconds"], rel=1e-3)
    lines = {each["key"]: each["after"] for one in found["changes"] for each in one["lines"]}
    assert lines["+critic.fsdp.use_dynamic_bsz"] == "False"
    assert lines["+critic.fsdp.micro_batch_size_per_gpu"] == "16"
    # No more than one rounding is said where a change does several things.
    assert all("nothing" not in one["numerics"] for one in found["changes"][:2])


def test_a_misspelt_key_is_said_and_put_right_in_what_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = GRPO.read_text(encoding="utf-8")
    launch, output = tmp_path / "launch.sh", tmp_path / "new.sh"
    section = "actor_rollout_ref.actor"
    for right, wrong in (
        ("ppo_epochs", "ppo_epoch"),
        ("ppo_mini_batch_size", "ppo_minibatch_size"),
    ):
        key, written = f"{section}.{right}", f"{section}.{wrong}"
        given = text.replace(key, written) if key in text else text.replace("$@", f"{written}=1")
        launch.write_text(given, encoding="utf-8")
        # Nothing but the key is worth it.
        least = ("--at-least", "0.9", "--write", str(output))
        code, out, err = call(capsys, "advise", str(launch), *GIVEN, *least)
        assert code == 0, err
        assert f"{written} is no key of verl@0.9.1: {key}" in out
        assert "misspelt, read here as they are meant, and put right in what is written" in out
        assert f"{output}: 1 changed" in err
        assert output.read_text(encoding="utf-8") == given.replace(f"{written}=", f"{key}=")


def test_a_misspelt_key_that_stands_elsewhere_is_said_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = GRPO.read_text(encoding="utf-8")
    wrong = "actor_rollout_ref.actor.ppo_minibatch_size"
    more = f"{wrong}=256 \\\n    {wrong}=256"
    launch, output = tmp_path / "launch.sh", tmp_path / "new.sh"
    right = "actor_rollout_ref.actor.ppo_mini_batch_size=256"
    assert right in text
    launch.write_text(text.replace(right, more), encoding="utf-8")
    least = ("--at-least", "0.9", "--write", str(output))
    code, out, err = call(capsys, "advise", str(launch), *GIVEN, *least)
    assert (code, output.exists()) == (2, False)
    assert f"{wrong} is no key of verl@0.9.1" in out
    assert f"launch.sh line 15: {wrong} stands more than once" in err
