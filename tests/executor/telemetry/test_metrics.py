"""Metrics: their names and values, and what reaches files and services."""

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from automap.executor.batch import Batch, Ragged
from automap.executor.settings import MetricsSettings
from automap.executor.telemetry.call_records import CallRecord, RecordFile, RecordKind, read_records
from automap.executor.telemetry.json_lines import JsonLines, read_lines
from automap.executor.telemetry.loggers import MetricsWriter, MissingLoggerError
from automap.executor.telemetry.metrics import rollout_metrics, timing_metrics, training_metrics


def record(
    call_id: str, seconds: float, *, kind: RecordKind | None = None, iteration: int = 1
) -> CallRecord:
    role, _, rest = call_id.partition(".")
    return CallRecord(
        iteration=iteration,
        call_id=call_id,
        role=role,
        kind=kind or rest.partition(".")[0],
        method="method",
        start_seconds=1000.0,
        end_seconds=1000.0 + seconds,
        ranks=(0, 1),
    )


def test_calls_are_timed_under_the_names_of_verl() -> None:
    records = [
        record("actor.generate", 2.0),
        record("actor.generate", 0.25, kind="reshard"),
        record("actor.generate.greedy", 0.5),
        record("actor.forward", 0.125),
        record("reference.forward", 0.25),
        record("critic.forward", 0.375),
        record("cost_critic.forward", 0.75),
        record("reward.forward", 0.5),
        record("reward.forward.greedy", 0.5),
        record("cost.forward", 0.625),
        record("gae", 0.0625, kind="operation"),
        record("lagrangian", 0.0625, kind="operation"),
        record("actor.train", 1.0),
        record("actor.train", 1.5),
        record("critic.train", 3.0),
        record("checkpoint", 0.1, kind="checkpoint"),
        record("iteration", 16.0, kind="iteration"),
    ]
    metrics = timing_metrics(records, prompt_tokens=300, response_tokens=500, num_devices=4)
    timing = {name: value for name, value in metrics.items() if name.startswith("timing_s/")}
    assert timing == pytest.approx(
        {
            "timing_s/gen": 2.0,
            "timing_s/update_weights": 0.25,
            "timing_s/gen_max": 0.5,
            "timing_s/old_log_prob": 0.125,
            "timing_s/ref": 0.25,
            "timing_s/values": 0.375,
            "timing_s/cost_values": 0.75,
            "timing_s/reward": 1.0,
            "timing_s/cost": 0.625,
            "timing_s/adv": 0.125,
            "timing_s/update_actor": 2.5,
            "timing_s/update_critic": 3.0,
            "timing_s/save_checkpoint": 0.1,
            "timing_s/step": 16.0,
        }
    )
    assert metrics["timing_per_token_ms/gen"] == pytest.approx(2000 / 500)
    assert metrics["timing_per_token_ms/update_actor"] == pytest.approx(2500 / 800)
    assert "timing_per_token_ms/step" not in metrics
    assert metrics["perf/total_num_tokens"] == 800
    assert metrics["perf/time_per_step"] == 16.0
    assert metrics["perf/throughput"] == pytest.approx(800 / 16 / 4)


def rollout() -> Batch:
    """Three rows, the last of which only fills up."""
    lengths = torch.tensor([2, 4, 3])
    values = torch.arange(9, dtype=torch.float32)
    return Batch(
        {
            "prompt_tokens": Ragged(torch.zeros(7, dtype=torch.int64), torch.tensor([1, 4, 2])),
            "response_tokens": Ragged(torch.zeros(9, dtype=torch.int64), lengths),
            "scores": torch.tensor([1.0, 0.0, 77.0]),
            "rewards": Ragged(values, lengths),
            "advantages": Ragged(values - 3, lengths),
            "returns": Ragged(values * 2, lengths),
            "values": Ragged(values * 2 - torch.tensor([1.0, -1, 1, -1, 1, -1, 0, 0, 0]), lengths),
            "weight": torch.tensor([1.0, 1.0, 0.0]),
        }
    )


def test_a_rollout_is_summarised_without_the_rows_that_fill_up() -> None:
    metrics = rollout_metrics(rollout(), max_prompt_length=4, max_response_length=8)
    # Rows 0 and 1: rewards 0 1 | 2 3 4 5; returns 0 2 | 4 6 8 10; the critic is off by 1.
    assert metrics == pytest.approx(
        {
            "prompt_length/mean": 2.5,
            "prompt_length/max": 4.0,
            "prompt_length/min": 1.0,
            "prompt_length/clip_ratio": 0.5,
            "prompt_length/p50": 2.5,
            "prompt_length/p90": 3.7,
            "prompt_length/p99": 3.97,
            "response_length/mean": 3.0,
            "response_length/max": 4.0,
            "response_length/min": 2.0,
            "response_length/clip_ratio": 0.0,
            "response_length/p50": 3.0,
            "response_length/p90": 3.8,
            "response_length/p99": 3.98,
            "critic/score/mean": 0.5,
            "critic/score/max": 1.0,
            "critic/score/min": 0.0,
            "critic/rewards/mean": 7.5,
            "critic/rewards/max": 14.0,
            "critic/rewards/min": 1.0,
            "critic/advantages/mean": -0.5,
            "critic/advantages/max": 2.0,
            "critic/advantages/min": -3.0,
            "critic/returns/mean": 5.0,
            "critic/returns/max": 10.0,
            "critic/returns/min": 0.0,
            "critic/values/mean": 5.0,
            "critic/values/max": 11.0,
            "critic/values/min": -1.0,
            # Returns vary by mean((−5 −3 −1 1 3 5)²) = 35/3, the errors by 1.
            "critic/vf_explained_var": 1 - 3 / 35,
        }
    )


def test_a_rollout_without_values_or_weights_has_fewer_metrics() -> None:
    batch = rollout().only("response_tokens", "scores")
    metrics = rollout_metrics(batch, max_prompt_length=4, max_response_length=4)
    assert {name.rpartition("/")[0] for name in metrics} == {"response_length", "critic/score"}
    assert metrics["critic/score/max"] == 77.0
    assert metrics["response_length/clip_ratio"] == pytest.approx(1 / 3)


def test_training_steps_are_averaged_and_named_by_role() -> None:
    steps = [
        {"actor/pg_loss": 1.0, "grad_norm": 2.0, "learning_rate": 0.1, "loss": 1.0},
        {"actor/pg_loss": 3.0, "grad_norm": 4.0, "learning_rate": 0.2, "loss": 3.0},
    ]
    assert training_metrics("actor", steps) == pytest.approx(
        {"actor/pg_loss": 2.0, "actor/grad_norm": 3.0, "actor/lr": 0.2, "actor/loss": 2.0}
    )
    assert training_metrics("cost_critic", [{"critic/vf_loss": 1.0}]) == {
        "cost_critic/vf_loss": 1.0
    }


# Files


def test_lines_survive_a_torn_end_and_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = JsonLines(path, key="step", keep_up_to=0)
    for step in (1, 2, 3):
        lines.append({"step": step})
        assert read_lines(path)[-1] == {"step": step}, "on the disk before append returns"
    lines.close()
    with path.open("ab") as file:
        file.write(b'{"step": 4, "da')
    assert [line["step"] for line in read_lines(path)] == [1, 2, 3]
    lines = JsonLines(path, key="step", keep_up_to=2)
    lines.append({"step": 3, "again": True})
    assert read_lines(path) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]
    lines.close()
    JsonLines(path, key="step", keep_up_to=0).close()
    assert read_lines(path) == []
    assert list(tmp_path.iterdir()) == [path]


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    first, second = record("actor.generate", 1.5), record("actor.train", 2.0, iteration=2)
    first = first.model_copy(update={"bytes": {"peak_memory": 5}})
    file = RecordFile(path)
    file.append([first, second])
    file.close()
    assert read_records(path) == [first, second]
    RecordFile(path, resumed_iteration=1).close()
    assert read_records(path) == [first]
    with pytest.raises(ValueError, match="ends at 999"):
        CallRecord.model_validate({**first.model_dump(), "end_seconds": 999.0})


def test_metrics_are_lines_that_verls_readers_know(tmp_path: Path) -> None:
    settings = MetricsSettings(loggers=["jsonl"])
    writer = MetricsWriter(tmp_path, settings, run_name="run")
    writer.write(1, {"actor/pg_loss": 0.5, "critic/score/mean": math.nan})
    writer.write(2, {"actor/pg_loss": math.inf})
    writer.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {
        "step": 1,
        "data": {"actor/pg_loss": 0.5, "critic/score/mean": None, "training/global_step": 1.0},
    }
    assert json.loads(lines[1])["data"]["actor/pg_loss"] is None
    resumed = MetricsWriter(tmp_path, settings, run_name="run", resumed_iteration=1)
    resumed.write(2, {"actor/pg_loss": 7.0})
    resumed.close()
    written = read_lines(tmp_path / "metrics.jsonl")
    assert {line["step"]: line["data"]["actor/pg_loss"] for line in written} == {1: 0.5, 2: 7.0}


def scalars(folder: Path, name: str) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(name)}


def test_tensorboard_shows_a_resumed_run_once(tmp_path: Path) -> None:
    settings = MetricsSettings(loggers=["tensorboard"])
    writer = MetricsWriter(tmp_path, settings, run_name="run")
    for iteration in (1, 2, 3):
        writer.write(iteration, {"timing_s/gen": float(iteration)})
    assert scalars(tmp_path, "timing_s/gen") == {1: 1.0, 2: 2.0, 3: 3.0}, "before close, too"
    writer.close()
    resumed = MetricsWriter(tmp_path, settings, run_name="run", resumed_iteration=2)
    resumed.write(3, {"timing_s/gen": 30.0})
    resumed.close()
    assert scalars(tmp_path, "timing_s/gen") == {1: 1.0, 2: 2.0, 3: 30.0}
    anew = MetricsWriter(tmp_path, settings, run_name="run")
    anew.write(1, {"timing_s/gen": 100.0})
    anew.close()
    assert scalars(tmp_path, "timing_s/gen") == {1: 100.0}


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard"])
def test_a_logger_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingLoggerError, match=f"names '{name}'.*pip install {name}"):
        MetricsWriter(tmp_path, MetricsSettings(loggers=[name]), run_name="run")


def installed(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


@pytest.mark.skipif(not installed("mlflow"), reason="mlflow is not installed")
def test_mlflow_gets_the_metrics_of_a_resumed_run_in_one_run(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    settings = MetricsSettings(loggers=["mlflow"], mlflow_tracking_uri=uri)
    for resumed in (0, 1):
        writer = MetricsWriter(
            tmp_path / "run",
            settings,
            run_name="tiny",
            resumed_iteration=resumed,
            config={"algorithm": {"gamma": 1.0}},
        )
        writer.write(resumed + 1, {"timing_s/gen": 0.5 + resumed})
        writer.close()
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("automap")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.run_name for run in runs] == ["tiny"]
    history = client.get_metric_history(runs[0].info.run_id, "timing_s/gen")
    assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 1.5)]
    assert runs[0].data.params == {"algorithm.gamma": "1.0"}


@pytest.mark.skipif(not installed("wandb"), reason="wandb is not installed")
def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    settings = MetricsSettings(loggers=["wandb"], wandb_mode="offline")
    writer = MetricsWriter(tmp_path / "run", settings, run_name="tiny")
    writer.write(1, {"timing_s/gen": 0.5})
    writer.close()
    assert list((tmp_path / "run").glob("wandb/offline-run-*/run-*.wandb"))
