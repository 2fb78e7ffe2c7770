"""Writes every iteration's metrics to files and to the services that people watch runs in."""

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from automap.executor.errors import RunError
from automap.executor.settings import MetricsSettings
from automap.executor.telemetry.json_lines import JsonLines

METRICS_FILE = "metrics.jsonl"


class MissingLoggerError(RunError):
    """A logger was asked for whose package is not installed."""


class Logger(Protocol):
    """One destination of metrics."""

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsWriter:
    """All loggers of a run."""

    def __init__(
        self,
        folder: Path,
        settings: MetricsSettings,
        *,
        run_name: str,
        resumed_iteration: int = 0,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Open the loggers that the settings name.

        Args:
            folder: The run's folder; metrics.jsonl and tensorboard/ are written there.
            settings: Which loggers.
            run_name: For MLflow and Weights & Biases.
            resumed_iteration: What an earlier attempt wrote behind it is dropped; 0: all of it.
            config: Settings of the run, shown beside its metrics; may be nested.

        Raises:
            MissingLoggerError: a package is not installed.
        """
        self._loggers: list[Logger] = []
        for name in dict.fromkeys(settings.loggers):
            match name:
                case "jsonl":
                    logger: Logger = _JsonlLogger(folder / METRICS_FILE, resumed_iteration)
                case "tensorboard":
                    logger = _TensorboardLogger(folder / "tensorboard", resumed_iteration)
                case "mlflow":
                    logger = _MlflowLogger(folder, settings, run_name, resumed_iteration, config)
                case "wandb":
                    logger = _WandbLogger(folder, settings, run_name, resumed_iteration, config)
            self._loggers.append(logger)

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one iteration, with training/global_step."""
        for logger in self._loggers:
            logger.write(iteration, {**metrics, "training/global_step": float(iteration)})

    def close(self) -> None:
        """Send what is buffered; nothing is written afterwards."""
        for logger in self._loggers:
            logger.close()


class _JsonlLogger:
    """{"step": 3, "data": {…}} per line, as verl's file logger writes it."""

    def __init__(self, path: Path, resumed_iteration: int) -> None:
        self._lines = JsonLines(path, key="step", keep_up_to=resumed_iteration)

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None:
        data = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._lines.append({"step": iteration, "data": data})

    def close(self) -> None:
        self._lines.close()


class _TensorboardLogger:
    def __init__(self, folder: Path, resumed_iteration: int) -> None:
        _module("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        if resumed_iteration == 0:
            for stale in folder.glob("events.out.tfevents.*"):
                stale.unlink()
        # TensorBoard itself then hides what an earlier attempt wrote from that step on.
        self._writer = SummaryWriter(str(folder), purge_step=resumed_iteration + 1)

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, global_step=iteration)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _MlflowLogger:
    def __init__(
        self,
        folder: Path,
        settings: MetricsSettings,
        run_name: str,
        resumed_iteration: int,
        config: Mapping[str, object] | None,
    ) -> None:
        mlflow = _module("mlflow", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri=settings.mlflow_tracking_uri)
        self._metric = mlflow.entities.Metric
        note = folder / "mlflow.json"
        if resumed_iteration and note.exists():
            self._run_id = json.loads(note.read_text())["run_id"]
            self._client.update_run(self._run_id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(settings.project)
        experiment_id = (
            experiment.experiment_id
            if experiment is not None
            else self._client.create_experiment(settings.project)
        )
        self._run_id = self._client.create_run(experiment_id, run_name=run_name).info.run_id
        for name, value in _flat(config or {}).items():
            self._client.log_param(self._run_id, name, value)
        folder.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"run_id": self._run_id}))

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None:
        import time

        now = int(time.time() * 1000)
        entries = [self._metric(name, value, now, iteration) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=entries)

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


class _WandbLogger:
    def __init__(
        self,
        folder: Path,
        settings: MetricsSettings,
        run_name: str,
        resumed_iteration: int,
        config: Mapping[str, object] | None,
    ) -> None:
        wandb = _module("wandb", "wandb")
        folder.mkdir(parents=True, exist_ok=True)
        note = folder / "wandb.json"
        resumed = bool(resumed_iteration) and note.exists()
        self._run = wandb.init(
            project=settings.project,
            name=run_name,
            dir=str(folder),
            mode=settings.wandb_mode,
            config=dict(config or {}),
            id=json.loads(note.read_text())["run_id"] if resumed else None,
            resume="allow" if resumed else None,
        )
        # Its own step may not go back, and a resumed run's does.
        self._run.define_metric("*", step_metric="training/global_step")
        note.write_text(json.dumps({"run_id": self._run.id}))

    def write(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics))

    def close(self) -> None:
        self._run.finish()


def _module(name: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLoggerError(
            f"metrics.loggers names {name!r}, and it is not installed: pip install {package}, or "
            "leave it out"
        ) from error


def _flat(config: Mapping[str, object], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
