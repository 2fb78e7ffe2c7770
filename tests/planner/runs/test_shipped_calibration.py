"""Calibrating what priced the plan, also shipped tables of several GPU types; doubtful logs."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.profiles.corrections import read_corrections
from automap.planner.runs.foreign_logs import foreign_run, mean_lengths, read_lines
from automap.planner.runs.priced_by import bases_of
from automap.planner.spec import JobSpec
from tests.cli.commands import call
from tests.helpers.measured_profiles import tiny_spec
from tests.helpers.profile_folders import profile_folder
from tests.helpers.tiny_runs import KERNELS, VERL, plain_plan


@cache
def two_types() -> Plan:
    """A GRPO of tiny models, all but the reference on an H100, that on an L40S."""
    document = tiny_spec(None).model_dump(mode="json", exclude_defaults=True)
    pools = [{"name": name, "gpu": name, "num_nodes": 1} for name in ("h100", "l40s")]
    document["algorithm"] = "grpo"
    del document["models"]["critic"]
    document["models"]["reward"] = {"architecture": "tiny-llama"}
    document["workload"] |= {"precision": "bf16", "responses_per_prompt": 2}
    document["cluster"] = {"pools": [{**pool, "gpus_per_node": 1} for pool in pools]}
    roles = document["models"]
    document["constraints"] = {
        "pools": {role: "l40s" if role == "reference" else "h100" for role in roles}
    }
    return make_plan(JobSpec.model_validate(document))


def as_placed(spec: JobSpec) -> Plan:
    return estimate(spec, plain_plan().placement())


def log_of(plan: Plan, ratio: float, folder: Path, **changes: Any) -> tuple[str, ...]:
    """What verl would have logged of a plan that took `ratio` times as long; with its options."""
    metrics = {
        "actor.generate": "timing_s/gen",
        "actor.forward": "timing_s/old_log_prob",
        "reference.forward": "timing_s/ref",
        "reward.forward": "timing_s/reward",
        "critic.forward": "timing_s/values",
        "critic.train": "timing_s/update_critic",
        "actor.train": "timing_s/update_actor",
    }
    data = {
        metrics[each.id]: ratio * (each.end_seconds - each.start_seconds)
        for each in plan.calls
        if each.id in metrics
    }
    data["timing_s/step"] = ratio * plan.iteration_seconds
    lines = [{"step": step, "data": {**data, **changes}} for step in (1, 2, 3)]
    log, file = folder / "log.jsonl", folder / "plan.json"
    log.write_text("\n".join(map(json.dumps, lines)))
    file.write_text(plan.model_dump_json(by_alias=True))
    return str(log), "--format", "verl", "--plan", str(file)


@pytest.mark.slow
def test_a_log_teaches_the_shipped_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, first = plain_plan(), tmp_path / "first"
    arguments = log_of(before, 2.0, tmp_path)
    code, out, err = call(capsys, "calibrate", *arguments, "--output", str(first), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    (profile,) = told["profiles"]
    assert (profile["gpu_type"], profile["based_on"]) == ("cpu", "shipped")
    for each in told["calls"]:
        assert each["measured"] == pytest.approx(2.0 * each["predicted_before"], rel=1e-6)
        assert each["predicted_before"] < each["predicted_after"] < each["measured"]
    (iteration,) = told["iterations"]
    assert iteration["predicted_before"] == pytest.approx(before.iteration_seconds)
    assert iteration["measured"] == pytest.approx(2.0 * before.iteration_seconds)
    after = as_placed(tiny_spec(first))
    assert after.iteration_seconds == pytest.approx(iteration["predicted_after"], rel=1e-6)
    assert 1.5 * before.iteration_seconds < after.iteration_seconds
    assert after.provenance.operator_tables == before.provenance.operator_tables
    assert after.provenance.profile_versions != before.provenance.profile_versions
    assert set(after.provenance.corrections["cpu"]) >= {"generate.language", "train.scalar"}

    # What priced the plan now is the first version; the log is another run, so evidence adds up.
    second = tmp_path / "second"
    (tmp_path / "again").mkdir()
    code, out, _ = call(
        capsys,
        "calibrate",
        *log_of(after, 1.1, tmp_path / "again"),
        "--output",
        str(second),
        "--json",
    )
    assert code == 0
    assert json.loads(out)["profiles"][0]["based_on"] == str(first)
    learnt = read_corrections(second)
    assert len(learnt.evidence) == 2 * len(read_corrections(first).evidence)
    code, out, _ = call(
        capsys,
        "calibrate",
        *arguments,
        "--profile",
        "shipped",
        "-o",
        str(tmp_path / "third"),
        "--quiet",
    )
    assert (code, out) == (0, f"Written to {tmp_path / 'third'}\n")


def test_other_shipped_tables_than_were_learnt_of_are_told(tmp_path: Path) -> None:
    folder = bases_of([plain_plan()])[0].materialised(tmp_path)
    (folder / "corrections.json").write_text(
        '{"corrections": [{"kind": "train", "role_class": "language", "factor": 2, '
        '"observations": 1}]}'
    )
    assert not any("calibrate again" in line for line in as_placed(tiny_spec(folder)).assumptions)
    document = json.loads((folder / "fingerprint.json").read_text())
    document["identity"]["tables_version"] = "0123456789ab"
    (folder / "fingerprint.json").write_text(json.dumps(document))
    told = [line for line in as_placed(tiny_spec(folder)).assumptions if "calibrate again" in line]
    assert len(told) == 1
    assert "learnt of version 0123456789ab" in told[0]


@pytest.mark.slow
def test_each_gpu_type_learns_of_its_own_pools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = log_of(two_types(), 1.5, tmp_path)
    output = tmp_path / "versions"
    code, out, _ = call(capsys, "calibrate", *arguments, "--output", str(output))
    assert code == 0
    text = " ".join(out.split())
    assert "h100-80gb-sxm: the shipped tables, taught by the calls of pool h100" in text
    assert "l40s-48gb: the shipped tables, taught by the calls of pool l40s" in text
    taught = {
        folder.name: {each.call for each in read_corrections(folder).evidence}
        for folder in output.iterdir()
    }
    assert taught["l40s-48gb"] == {"reference.forward"}
    assert {"actor.generate", "actor.train", "reward.forward"} <= taught["h100-80gb-sxm"]
    spec = two_types().spec.model_dump(mode="json", exclude_defaults=True)
    for pool, folder in zip(spec["cluster"]["pools"], ("h100-80gb-sxm", "l40s-48gb"), strict=True):
        pool["profile"] = str(output / folder)
    after = estimate(JobSpec.model_validate(spec), two_types().placement())
    assert 1.2 < after.iteration_seconds / two_types().iteration_seconds < 1.5

    one = str(output / "l40s-48gb")
    code, _, err = call(
        capsys, "calibrate", *arguments, "--profile", one, "-o", str(tmp_path / "one")
    )
    assert code == 0
    assert "actor.train ran in h100: of other GPU types, not learnt" in " ".join(err.split())
    code, _, err = call(capsys, "calibrate", *arguments, "--output", str(output))
    assert code == 2
    assert "is there already and not an empty folder" in err


def test_what_priced_a_plan_must_be_one_profile_that_is_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = profile_folder(tmp_path / "measured", KERNELS)
    plan = as_placed(tiny_spec(folder))
    arguments = log_of(plan, 1.1, tmp_path)
    code, _, _ = call(capsys, "calibrate", *arguments, "--output", str(tmp_path / "new"))
    assert code == 0
    assert (tmp_path / "new" / "memory_bound.parquet").exists()
    with pytest.raises(SpecError, match=r"cpu were priced with the shipped tables and with .*meas"):
        bases_of([plain_plan(), plan])
    assert [each.folder for each in bases_of([plain_plan(), plan], shipped=True)] == [None]
    folder.rename(tmp_path / "gone")
    code, _, err = call(capsys, "calibrate", *arguments, "--output", str(tmp_path / "newer"))
    assert code == 2
    assert "which is no folder here" in " ".join(err.split())
    assert "cannot be planned" not in err
    assert not (tmp_path / "newer").exists()


def test_a_plan_of_nothing_in_the_catalogue_teaches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = log_of(plain_plan(), 1.1, tmp_path)
    document = json.loads(Path(arguments[-1]).read_text())
    document["spec"]["models"]["actor"]["architecture"] = "no-such-model"
    Path(arguments[-1]).write_text(json.dumps(document))
    code, _, err = call(capsys, "calibrate", *arguments, "--output", str(tmp_path / "new"))
    assert code == 2
    assert f"cannot learn from {arguments[0]}" in " ".join(err.split())


def test_times_that_are_none_are_left_out_and_named() -> None:
    nan = float("nan")
    steps = {
        0: {"val-core/reward": 1.0},
        1: VERL,
        2: VERL | {"timing_s/ref": -1.0, "timing_s/step": 12.0},
        3: VERL | {"timing_s/ref": nan, "timing_s/update_weights": 0.0, "timing_s/step": 13.0},
        4: VERL | {"timing_s/update_actor": 5.0, "timing_s/step": 20.0},
    }
    found = foreign_run(steps, "verl", plain_plan(), source="log")
    # Step 0 only validates, so step 1 is what warms up.
    assert {each.call: each.iterations for each in found.observed}["reference.forward"] == 1
    assert found.iteration_seconds == 13.0
    assert found.warnings == [
        "timing_s/update_weights is 0 in step 3: left out, not above 0",
        "timing_s/ref is -1 in step 2, nan in step 3: left out, not above 0",
    ]
    bad = {step: {"timing_s/gen": 0.0} for step in steps}
    with pytest.raises(SpecError, match=r"none of its times can be used: timing_s/gen is 0 in st"):
        foreign_run(bad, "verl", plain_plan(), source="log")


def test_one_step_alone_is_the_warm_up() -> None:
    (warning,) = foreign_run({7: VERL}, "verl", plain_plan(), source="log").warnings
    assert "one step alone, which warms up" in warning


def test_lines_of_a_step_add_up_and_the_last_of_a_restart_counts() -> None:
    lines = [
        {"step": 1, "data": {"timing_s/gen": 1.0}},
        {"step": 1, "data": {"timing_s/ref": 2.0, "big": 10**400}},
        {"timing_s/gen": 5.0},
        {"step": 1, "data": {"timing_s/gen": 3.0}},
    ]
    found = read_lines("\n".join(map(json.dumps, lines)), source="log")
    assert found == {1: {"timing_s/gen": 3.0, "timing_s/ref": 2.0}, 3: {"timing_s/gen": 5.0}}


def test_slimes_log_is_read_by_its_names() -> None:
    names = ("train_wait", "log_probs", "ref_log_probs", "actor_train", "step")
    steps = {step: {f"perf/{name}_time": 2.0 + step for name in names} for step in (1, 2, 3)}
    found = foreign_run(steps, "slime", plain_plan(), source="log")
    seconds = {each.call: each.seconds for each in found.observed}
    assert seconds["actor.generate"] == seconds["actor.train"] == 4.5
    assert seconds["reference.forward"] == 4.5
    assert found.iteration_seconds == 4.5
    with pytest.raises(SpecError, match="perf/train_wait_time"):
        foreign_run({1: VERL}, "slime", plain_plan(), source="log")


def test_openrlhfs_log_is_read_by_its_names_with_or_without_the_loggers_prefix() -> None:
    names = {"generation": 3.0, "make_experience": 5.0, "ppo_train": 2.0, "broadcast": 1.0}
    for prefix in ("", "train/"):
        step = {f"{prefix}timing/{name}": seconds for name, seconds in names.items()}
        step |= {f"{prefix}timing/step_total": 11.0, f"{prefix}rollout/response_length_mean": 13.0}
        found = foreign_run({1: step, 2: step}, "openrlhf", plain_plan(), source="log")
        seconds = {each.call: each.seconds for each in found.observed}
        # What makes experience comes after generation, which is timed by itself.
        assert seconds["actor.generate"] == pytest.approx(4.0)
        scored = [value for call, value in seconds.items() if call.endswith(".forward")]
        assert sum(scored) == pytest.approx(5.0)
        assert (found.iteration_seconds, found.lengths) == (11.0, {"mean": 13.0})
        assert (found.missing, mean_lengths({1: step}, "openrlhf")) == ([], {"response": 13.0})


@pytest.mark.parametrize("trainer", ["GRPOTrainer", "RLOOTrainer"])
def test_trls_log_has_times_of_calls_and_of_optimizer_steps_apart(trainer: str) -> None:
    plan, profiled = plain_plan(), f"profiling/Time taken: {trainer}."
    steps = {
        1: {f"{profiled}vLLM.generate": 9.0, "train/step_time": 30.0},
        2: {f"{profiled}vLLM.generate": 3.0, f"{profiled}sync_weights": 1.0},
        3: {"train/step_time": 8.0, "train/completions/mean_length": 13.0},
        4: {f"{profiled}compute_loss": 1.0, "train/step_time": 4.0},
        5: {f"{profiled}vLLM.generate": 3.0},
    }
    found = foreign_run(steps, "trl", plan, source="log")
    [generated] = found.observed
    assert generated.call == "actor.generate"
    assert generated.seconds == pytest.approx(4.0)
    updates = plan.spec.workload.updates_per_epoch * plan.spec.workload.epochs
    assert found.iteration_seconds == pytest.approx(6.0 * updates)
    assert (found.lengths, found.missing) == ({"mean": 13.0}, [])
    with pytest.raises(SpecError, match=r"vLLM\.generate"):
        foreign_run({1: {"train/step_time": 8.0}}, "trl", plan, source="log")


def test_skyrls_log_is_read_by_its_names() -> None:
    step = {
        "timing/step": 9.0,
        "timing/generate": 4.0,
        "timing/fwd_logprobs_values_reward": 1.0,
        "timing/critic_train": 1.0,
        "timing/policy_train": 2.0,
        "timing/train_critic_and_policy": 3.0,
        "timing/sync_weights": 0.5,
        "generate/avg_num_tokens": 13.0,
    }
    found = foreign_run({1: step, 2: step}, "skyrl", plain_plan(), source="log")
    seconds = {each.call: each.seconds for each in found.observed}
    assert seconds["actor.generate"] == pytest.approx(4.5)
    assert seconds["actor.train"] == pytest.approx(2.0)
    assert found.iteration_seconds == pytest.approx(9.0)
    assert found.missing == []
    assert mean_lengths({1: step}, "skyrl") == {"response": 13.0}


def test_areals_log_is_read_by_its_names() -> None:
    step = {
        "timeperf/rollout": 3.0,
        "timeperf/ref_logp": 0.5,
        "timeperf/recompute_logp": 0.25,
        "timeperf/critic_values": 0.75,
        "timeperf/train_step": 2.0,
        "timeperf/critic_train_step": 1.5,
        "timeperf/update_weights": 1.0,
        "ppo_actor/prompt_len/avg": 17.0,
    }
    found = foreign_run({1: step, 2: step}, "areal", plain_plan(), source="log")
    seconds = {each.call: each.seconds for each in found.observed}
    assert seconds["actor.generate"] == pytest.approx(4.0)
    assert seconds["reference.forward"] == 0.5
    assert seconds["actor.train"] == 2.0
    # It logs no time of a whole iteration.
    assert (found.iteration_seconds, found.missing) == (None, [])
    assert mean_lengths({1: step}, "areal") == {"prompt": 17.0}
    with pytest.raises(SpecError, match="timeperf/rollout"):
        foreign_run({1: VERL}, "areal", plain_plan(), source="log")
