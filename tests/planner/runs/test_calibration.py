"""What runs teach: factors from evidence, prices with them, and what has drifted."""

import json
from pathlib import Path

import pytest
import yaml

from automap.executor.telemetry.run_report import (
    RunReport,
)
from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.profiles.corrections import (
    FILE,
    BetweenCalls,
    Evidence,
    corrections_of,
    read_corrections,
)
from automap.planner.replanning.replan import replan
from automap.planner.replanning.result import ReplanOptions
from automap.planner.runs.calibration import Observed, between_calls, calibrate, evidence_of
from automap.planner.runs.drift_detection import Deviation, drift, in_words
from automap.planner.runs.foreign_logs import foreign_run, read_lines
from automap.planner.runs.iterations import Window
from automap.planner.runs.priced_by import bases_of
from automap.planner.runs.suggestion import drift_of_window, planned_seconds
from automap.planner.spec import ConstraintsSpec, LoraSpec
from automap.service.cli.inputs.metric_logs import read_log
from automap.service.cli.terminal.failures import BadInputError
from automap.service.runs.call_seconds import other_plan
from automap.service.runs.drift_report import drift_of, drift_summary
from tests.cli.commands import call
from tests.helpers.measured_profiles import tiny_spec
from tests.helpers.profile_folders import profile_folder
from tests.helpers.small_jobs import pool, small_job
from tests.helpers.tiny_runs import KERNELS, VERL, plain_plan, run_report


def seen(kind: str, role_class: str, ratio: float, run: str = "one") -> Evidence:
    return Evidence.model_validate(
        {
            "run": run,
            "call": f"x.{kind}",
            "kind": kind,
            "role_class": role_class,
            "predicted": 2.0,
            "measured": 2.0 * ratio,
            "iterations": 5,
        }
    )


def observed(plan: Plan, ratio: float) -> list[Observed]:
    return [Observed(call.id, ratio * call.measurable_seconds, 5) for call in plan.calls]


def test_one_observation_moves_a_factor_most_of_the_way_and_many_all_of_it() -> None:
    one = corrections_of([seen("generate", "language", 2.0)])
    # The kind moves 1/1.25 of the way, the class half of what is left.
    assert one.factor("generate", "language") == pytest.approx(2.0**0.9)
    many = corrections_of([seen("generate", "language", 2.0)] * 20)
    assert many.factor("generate", "language") == pytest.approx(2.0, rel=0.01)
    assert many.factor("train", "language") == 1.0


def test_models_without_evidence_take_the_factor_of_their_kind() -> None:
    found = corrections_of([seen("train", "language", 1.5), seen("train", "language", 1.5)])
    assert 1.2 < found.factor("train", "scalar") < found.factor("train", "language") < 1.5
    apart = corrections_of(
        [*[seen("train", "language", 2.0)] * 9, *[seen("train", "scalar", 0.5)] * 9]
    )
    assert apart.factor("train", "language") > 1.8
    assert apart.factor("train", "scalar") < 0.6


def test_a_calibrated_profile_prices_what_was_measured_and_says_so(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    (folder / "cluster.yaml").write_text(f"cluster:\n  pools:\n  - profile: {folder}\n")
    before = make_plan(tiny_spec(folder))
    evidence = evidence_of(plain_plan(), observed(before, 1.5), folder, run="run")
    assert {each.kind for each in evidence} == {"generate", "forward", "train"}
    for each in evidence:
        assert each.measured / each.predicted == pytest.approx(1.5, rel=0.05), each
    version = tmp_path / "version"
    calibrate(folder, version, [each for each in evidence for _ in range(20)])
    assert yaml.safe_load((version / "cluster.yaml").read_text())["cluster"]["pools"] == [
        {"profile": str(version)}
    ]
    after = make_plan(tiny_spec(version))
    assert after.iteration_seconds == pytest.approx(1.5 * before.iteration_seconds, rel=0.03)
    assert after.provenance.corrections["cpu"]["train.language"] == pytest.approx(1.5, rel=0.02)
    assert any("1 run taught" in line for line in after.assumptions)
    versions = [plan.provenance.measured_profiles["cpu"].split()[0] for plan in (before, after)]
    assert versions[0] != versions[1]
    # Evidence is of the tables alone, whatever the profile has learnt already.
    again = evidence_of(plain_plan(), observed(before, 1.5), version, run="run")
    assert again == evidence


def test_what_a_run_adds_between_its_calls_is_in_the_next_prediction(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    plan = make_plan(tiny_spec(folder))
    calls = observed(plan, 1.0)
    between = between_calls(plan, calls, plan.iteration_seconds + 0.014, run="run")
    planned = sum(call.seconds_by_part.between for call in plan.calls)
    assert between is not None
    # generate, reference, values and the actor's own log-probs; two steps of actor and critic each.
    steps = {"generate": 1, "forward": 1, "train": tiny_spec(None).workload.updates_per_epoch}
    assert between.calls == sum(steps[call.kind] for call in plan.calls if call.copy_id)
    assert planned == pytest.approx(1e-3 * between.calls), "as executors on two cores have it"
    assert between.seconds == pytest.approx(planned + 0.014, abs=1e-5)
    version = tmp_path / "version"
    evidence = evidence_of(plan, calls, folder, run="run")
    calibrate(folder, version, evidence, [between])
    after = make_plan(tiny_spec(version))
    assert after.iteration_seconds == pytest.approx(plan.iteration_seconds + 0.014, rel=0.01)
    each = after.provenance.corrections["cpu"]["between_calls_seconds"]
    assert each * between.calls == pytest.approx(planned + 0.014, abs=2e-5)
    found = [(is_now.seconds_by_part.between, steps[is_now.kind]) for is_now in after.calls]
    owned = [pair for pair, call in zip(found, after.calls, strict=True) if call.copy_id]
    assert all(between == pytest.approx(each * count, rel=1e-3) for between, count in owned)
    assert any(" ms between calls that 1 run taught" in line for line in after.assumptions)
    as_shipped = "are what Automap's executor took on two cores"
    assert any(as_shipped in line for line in plan.assumptions)
    assert not any(as_shipped in line for line in after.assumptions)
    # Evidence of calls is of the tables alone, and a run that is given again counts once.
    assert evidence_of(plan, calls, version, run="run") == evidence
    again = calibrate(version, tmp_path / "again", evidence, [between])
    assert again.between == [between]


def test_a_run_that_its_framework_times_as_planned_teaches_no_factor(tmp_path: Path) -> None:
    """Seconds around the calls are in a plan for NeMo-RL, and in the timer of none of them."""
    models = {role: {"architecture": "qwen2.5-1.5b"} for role in ("actor", "reference")}
    plan = make_plan(
        small_job(
            models=models | {"reward": {"function": True}},
            cluster__pools=[pool(2)],
            search__target="nemo-rl",
        )
    )
    assert sum(call.seconds_by_part.between for call in plan.calls) == pytest.approx(4.0)
    measured = [Observed(call.id, call.measurable_seconds, 5) for call in plan.calls]
    (base,) = bases_of([plan])
    evidence = evidence_of(plan, measured, base.materialised(tmp_path), run="run")
    assert {each.call for each in evidence} >= {"actor.generate", "actor.train"}
    for each in evidence:
        assert each.measured / each.predicted == pytest.approx(1.0, rel=1e-4), each


def test_a_run_as_its_plan_with_what_lies_between_calls_has_not_drifted(tmp_path: Path) -> None:
    """A run measures its calls alone, and its iteration with what lies between them."""
    folder, version = profile_folder(tmp_path / "profile", KERNELS), tmp_path / "version"
    before = make_plan(tiny_spec(folder))
    own = [call for call in observed(before, 1.0) if call.seconds > 0]
    between = BetweenCalls(run="run", seconds=before.iteration_seconds, calls=len(own))
    calibrate(folder, version, evidence_of(before, own, folder, run="run"), [between])
    plan = make_plan(tiny_spec(version))
    assert plan.iteration_seconds > 1.5 * before.iteration_seconds
    known = planned_seconds(plan)
    assert sum(known.values()) < 0.7 * plan.iteration_seconds
    window = Window(first=1, last=5, seconds=plan.iteration_seconds, calls=known)
    found = drift_of_window(plan, window, 0.2)
    assert (found.replan, found.calls) == (False, {})
    measured = {name: seconds for name, seconds in known.items() if seconds > 0}
    kept = replan(plan, ReplanOptions(measured=measured, iterations_left=10))
    assert kept.keep_seconds == pytest.approx(plan.iteration_seconds, rel=1e-3)


def test_nothing_lies_between_calls_that_overlap_or_were_not_all_measured() -> None:
    plan = plain_plan()
    calls, seconds = observed(plan, 1.0), plan.iteration_seconds + 1.0
    assert between_calls(plan, calls, seconds, run="run") is not None
    assert between_calls(plan, calls, None, run="run") is None
    assert between_calls(plan, calls[1:], seconds, run="run") is None
    overlapping = plan.model_copy(update={"iteration_seconds": 0.9 * plan.iteration_seconds})
    assert between_calls(overlapping, calls, seconds, run="run") is None
    stale = plan.model_copy(update={"staleness": 1})
    assert between_calls(stale, calls, seconds, run="run") is None
    # What was measured in parts, whose medians are of unlike iterations, is never below nothing.
    (fast,) = [between_calls(plan, calls, 0.5 * plan.iteration_seconds, run="run")]
    assert fast is not None
    assert fast.seconds == 0.0


def test_a_reference_on_the_model_of_an_actor_with_adapters_is_learnt_from(tmp_path: Path) -> None:
    spec = tiny_spec(None)
    actor = spec.models["actor"].model_copy(update={"lora": LoraSpec(rank=4)})
    models = {**spec.models, "actor": actor}
    del models["reference"]
    changes = {"models": models, "constraints": ConstraintsSpec()}
    plan = make_plan(spec.model_copy(update=changes))
    folder = profile_folder(tmp_path, KERNELS)
    evidence = evidence_of(plan, observed(plan, 1.0), folder, run="run")
    assert "reference.forward" in {each.call for each in evidence}


def test_evidence_adds_up_and_a_run_that_is_given_again_counts_once(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    first, second = tmp_path / "first", tmp_path / "second"
    calibrate(folder, first, [seen("train", "language", 1.2, run="a")])
    evidence = [seen("train", "language", 1.4, run=run) for run in ("a", "b")]
    found = calibrate(first, second, evidence)
    assert sorted(each.run for each in found.evidence) == ["a", "b"]
    assert read_corrections(second) == found
    assert read_corrections(folder).corrections == []


def test_nothing_is_overwritten_and_other_devices_are_refused(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    with pytest.raises(SpecError, match="is there already"):
        calibrate(folder, folder, [seen("train", "language", 1.2)])
    with pytest.raises(SpecError, match="holds no profile"):
        calibrate(tmp_path, tmp_path / "new", [seen("train", "language", 1.2)])
    other = profile_folder(tmp_path / "other", KERNELS, device_type="h100")
    with pytest.raises(SpecError, match="was measured on h100; the run was on cpu"):
        evidence_of(plain_plan(), observed(plain_plan(), 1.0), other, run="run")
    assert not (tmp_path / "new").exists()


def test_corrections_that_cannot_be_read_refuse_the_spec(tmp_path: Path) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    document = {"corrections": [{"kind": "train", "role_class": "scalar", "factor": -1}]}
    (folder / FILE).write_text(json.dumps(document))
    with pytest.raises(SpecError, match=r"corrections\.0\.factor: Input should be greater than 0"):
        make_plan(tiny_spec(folder))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run that took twice as long as planned, with responses of six tokens instead of eight."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text(plain_plan().model_dump_json(by_alias=True))
    report = run_report(plain_plan(), 2.0, tokens=6.0)
    (folder / "report.json").write_text(report.model_dump_json())
    return folder


def test_the_command_writes_a_profile_and_a_spec(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(tiny_spec(None).model_dump(mode="json", exclude_defaults=True)))
    version, learnt = tmp_path / "version", tmp_path / "learnt.yaml"
    arguments = (str(run_folder), "--profile", str(folder), "--output", str(version))
    code, out, err = call(
        capsys, "calibrate", *arguments, "--spec", str(spec), "--output-spec", str(learnt), "--json"
    )
    assert (code, err) == (0, "")
    told = json.loads(out)
    (profile,) = told["profiles"]
    assert (profile["gpu_type"], profile["folder"]) == ("cpu", str(version))
    assert {each["kind"] for each in profile["corrections"]["corrections"]} == {
        "generate",
        "forward",
        "train",
    }
    assert told["response_length"] == {"p50": 6.0, "p90": 6.0, "p99": 6.0}
    found = yaml.safe_load(learnt.read_text())["workload"]["response_length"]
    assert found == {"p50": 6.0, "p90": 6.0, "p99": 6.0, "max": 8}
    assert (version / FILE).exists()
    code, out, _ = call(capsys, "calibrate", *arguments)
    assert code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{run}",), "nothing to calibrate: give a profile, a spec or both"),
        (("{run}", "--profile", "x"), "--profile needs --output"),
        (("{run}", "--output-spec", "x"), "--output-spec needs --spec"),
        (("nowhere", "--profile", "x", "--output", "y"), "nowhere: there is no nowhere"),
        (
            ("{run}/plan.json", "--profile", "x", "--output", "y"),
            "this is a plan, not the report",
        ),
        (("{run}", "--profile", "{run}", "--output", "{run}/new"), "holds no profile"),
        (("x", "--profile", "x", "--output", "y", "--format", "verl"), "verl needs --plan PLAN"),
        (
            (
                "x",
                "--profile",
                "x",
                "--output",
                "y",
                "--format",
                "ours",
                "--plan",
                "{run}/plan.json",
            ),
            "--format: 'ours' is none of automap, verl, openrlhf, nemo-rl, slime, trl",
        ),
    ],
)
def test_what_is_wrong_is_named(
    run_folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    code, _, err = call(capsys, "calibrate", *(each.format(run=run_folder) for each in arguments))
    assert code == 2
    assert message in " ".join(err.split())
    assert not (run_folder / "new").exists()


def test_a_run_as_planned_has_not_drifted_and_one_that_is_slower_has() -> None:
    as_planned = drift_of(run_report(plain_plan(), 1.1))
    assert as_planned is not None
    assert not as_planned.replan
    assert drift_summary(run_report(plain_plan(), 1.1)) == []
    slower = run_report(plain_plan(), 1.3, tokens=6.0)
    found = drift_of(json.loads(slower.model_dump_json()))
    assert found is not None
    assert found.replan
    largest = max(plain_plan().calls, key=lambda each: each.end_seconds - each.start_seconds)
    assert next(iter(found.calls)) == largest.id
    lines = drift_summary(slower, folder="RUN")
    assert "1.30 times" in lines[0]
    assert "responses have 6 tokens in the mean, 0.75 times the 8" in lines[1]
    assert lines[-2].endswith("automap replan RUN/plan.json --measured RUN/report.json")
    assert "automap calibrate RUN" in lines[-1]
    assert "--output-spec" in lines[-1]
    assert drift_of(None) is None
    assert drift_of({"schema_version": 9}) is None


def test_lengths_alone_call_for_another_plan() -> None:
    same = Deviation(planned=1.0, measured=1.0)
    found = drift(same, {"x": same}, response_tokens=Deviation(planned=100, measured=150))
    assert found.replan
    assert found.calls == {}
    assert len(in_words(found)) == 2
    assert not drift(same, {}, response_tokens=Deviation(planned=100, measured=110)).replan
    assert drift(same, {}, response_tokens=None).response_tokens is None


def test_a_log_of_verl_times_the_calls_of_a_plan() -> None:
    text = "\n".join(
        json.dumps({"step": step, "data": {name: step * value for name, value in VERL.items()}})
        for step in (9, 1, 2, 3)
    )
    found = foreign_run(read_lines(text, source="log"), "verl", plain_plan(), source="log")
    # The first line warms up; medians are those of the second step of the rest.
    assert {each.call: each.seconds for each in found.observed} == pytest.approx(
        {
            "actor.generate": 10.0,
            "actor.forward": 1.0,
            "reference.forward": 0.8,
            "critic.forward": 0.6,
            "critic.train": 4.0,
            "actor.train": 6.0,
        }
    )
    assert found.observed[0].transition_seconds == pytest.approx(2.0)
    assert found.lengths == {"mean": 13.0}
    assert found.missing == []


def test_a_metric_of_several_calls_is_shared_by_the_plan() -> None:
    metrics = {"timing/generation": 3.0, "timing/make_experience": 5.0}
    found = foreign_run({1: metrics}, "openrlhf", plain_plan(), source="log")
    assert found.missing == ["timing/ppo_train"]
    seconds = {each.call: each.seconds for each in found.observed}
    assert seconds.pop("actor.generate") == pytest.approx(3.0)
    assert set(seconds) == {"actor.forward", "reference.forward", "critic.forward"}
    assert sum(seconds.values()) == pytest.approx(5.0)


def test_a_log_without_the_metrics_is_refused_and_they_are_named() -> None:
    with pytest.raises(SpecError, match=r"none of the metrics .*timing/train/generation"):
        foreign_run({1: {"loss": 1.0}}, "nemo-rl", plain_plan(), source="log")
    with pytest.raises(SpecError, match="line 2 is no JSON object"):
        read_lines("{}\nno", source="log")


def test_the_command_learns_from_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = profile_folder(tmp_path / "profile", KERNELS)
    plan, log = tmp_path / "plan.json", tmp_path / "log.jsonl"
    plan.write_text(plain_plan().model_dump_json(by_alias=True))
    log.write_text(json.dumps({"step": 1, "data": {"timing_s/update_actor": 9.0}}))
    arguments = (str(log), "--format", "verl", "--plan", str(plan), "--profile", str(folder))
    code, out, err = call(
        capsys, "calibrate", *arguments, "--output", str(tmp_path / "new"), "--json"
    )
    assert code == 0
    assert "without timing_s/gen, timing_s/old_log_prob" in err
    (profile,) = json.loads(out)["profiles"]
    (evidence,) = profile["corrections"]["evidence"]
    assert (evidence["call"], evidence["measured"]) == ("actor.train", 9.0)


def tensorboard_log(folder: Path, *steps: int, new_style: bool = False) -> None:
    """What torch's SummaryWriter leaves, and so verl: an event per step and metric."""
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    start = SessionLog(status=SessionLog.START)
    writer.add_event(Event(wall_time=1.0, step=steps[0], session_log=start))
    for step in steps:
        for name, value in VERL.items():
            plain = Summary(value=[Summary.Value(tag=name, simple_value=step * value)])
            summary = scalar_pb(name, step * value) if new_style else plain
            writer.add_event(Event(wall_time=1.0, step=step, summary=summary))
    writer.close()


@pytest.mark.parametrize("new_style", [False, True])
def test_a_log_of_tensorboard_is_read_as_json_lines_are(tmp_path: Path, new_style: bool) -> None:
    tensorboard_log(tmp_path / "project" / "run", 1, 2, 3, 7, new_style=new_style)
    # The run was restarted from its third step: what it logged then takes the place of the rest.
    tensorboard_log(tmp_path / "project" / "run", 3, 4, new_style=new_style)
    steps = read_log(str(tmp_path))
    if not new_style:  # of tensors TensorBoard itself hides nothing
        assert [step["timing_s/gen"] for step in steps.values()] == pytest.approx(
            [4.0, 8.0, 12.0, 16.0]
        )
    assert set(steps[1]) == set(VERL)
    found = foreign_run(steps, "verl", plain_plan(), source="log")
    assert found.missing == []
    assert len(found.observed) == 6
    files = (tmp_path / "project" / "run").iterdir()
    first = min(files, key=lambda file: file.stat().st_mtime_ns)
    assert read_log(str(first))[1] == pytest.approx(VERL)


def test_what_is_no_log_of_tensorboard_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(BadInputError, match="no TensorBoard event file is in this folder"):
        read_log(str(tmp_path))
    torn = tmp_path / "one" / "events.out.tfevents.1.host"
    torn.parent.mkdir()
    torn.write_bytes(b"no event at all")
    with pytest.raises(BadInputError, match="there is no scalar in it"):
        read_log(str(torn))
    tensorboard_log(tmp_path / "two", 1)
    with pytest.raises(BadInputError, match="2 runs have logged below this folder"):
        read_log(str(tmp_path))
    (whole,) = (tmp_path / "two").iterdir()
    whole.write_bytes(whole.read_bytes()[:-20])  # killed while it wrote
    assert read_log(str(tmp_path / "two"))[1]["timing_s/gen"] == pytest.approx(4.0)
    with pytest.raises(SpecError, match=r"timing/train/generation.*; it has timing_s/gen, .* more"):
        foreign_run({1: VERL | {"loss": 1.0}}, "nemo-rl", plain_plan(), source="log")


def test_a_report_of_another_plan_is_refused(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = RunReport.model_validate_json((run_folder / "report.json").read_bytes())
    plan = plain_plan()
    assert other_plan(report, plan) == ""
    call_plan = plan.calls[0]
    longer = call_plan.model_copy(update={"end_seconds": 2 * call_plan.end_seconds + 1})
    changed = plan.model_copy(update={"calls": [longer, *plan.calls[1:]]})
    assert f"of {call_plan.id} " in other_plan(report, changed)
    renamed = call_plan.model_copy(update={"id": "judge.score"})
    changed = plan.model_copy(update={"calls": [renamed, *plan.calls[1:]]})
    assert other_plan(report, changed) == "it has no call judge.score"
    other = tmp_path / "other.json"
    other.write_text(plan.model_copy(update={"name": "other"}).model_dump_json(by_alias=True))
    arguments = (str(run_folder), "--plan", str(other), "--profile", "x", "--output", "y")
    code, _, err = call(capsys, "calibrate", *arguments)
    assert code == 2
    assert "of another plan: its plan was named 'tiny-ppo-cpu'" in " ".join(err.split())


def test_a_function_without_seconds_is_no_multiple_of_none() -> None:
    calls = {"reward.forward": Deviation(planned=1e-6, measured=0.018)}
    found = drift(Deviation(planned=1.0, measured=2.0), calls)
    assert in_words(found)[1] == "reward.forward takes 0.018 s, and was planned as taking none"
