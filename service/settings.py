"""The service's configuration: read once, from AUTOMAP_… variables, and passed on."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from automap.planner.runs import RECENT, THRESHOLD

PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]


class Settings(BaseSettings):
    """Every setting, with its default here and nowhere else."""

    model_config = SettingsConfigDict(
        env_prefix="AUTOMAP_", frozen=True, extra="ignore", validate_by_name=True
    )

    database_url: str = Field(
        default="sqlite:///.automap/automap.db",
        description="sqlite:///PATH, or postgresql://USER:PASSWORD@HOST/NAME",
    )
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="Comma-separated; when set, /v1 asks for Authorization: Bearer KEY"
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = 2**20
    max_profile_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=2**25, description="Of a body that brings a measured profile"
    )
    profiles_folder: Path = Field(
        default=Path(".automap/profiles"),
        description="Where a server lays out the stored profiles that it plans with",
    )
    max_time_limit_seconds: PositiveSeconds = Field(
        default=600.0, description="Largest search.time_limit_seconds that a spec may ask for"
    )
    planning_overhead_seconds: PositiveSeconds = Field(
        default=60.0,
        description="What planning may take beyond twice the spec's own time limit (a slow "
        "machine needs that) before it is ended",
    )
    request_planners: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Planner processes that answer waiting requests"
    )
    queue_planners: Annotated[int, Field(ge=0, le=64)] = Field(
        default=1, description="Planner processes that work on the queue; 0: another server does"
    )
    max_waiting_requests: Annotated[int, Field(ge=1, le=32)] = Field(
        default=8, description="Requests that may wait for a planner; one more is answered 503"
    )
    lease_seconds: PositiveSeconds = Field(
        default=15.0,
        description="A server or worker silent for so long has lost its job to the others",
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=3, description="How often a plan or run is taken up before it counts as failed"
    )
    poll_seconds: PositiveSeconds = Field(
        default=1.0, description="How often the queue is looked at when nothing happens"
    )

    ray_address: str | None = Field(
        default=None,
        validation_alias=AliasChoices("AUTOMAP_RAY_ADDRESS", "RAY_ADDRESS"),
        description="Where a worker submits runs, http://HOST:8265; none: a local Ray, on demand",
    )
    ray_folder: Path = Field(
        default=Path(".automap/ray"), description="Where workers keep what a local Ray is found by"
    )
    runs_folder: Path = Field(
        default=Path(".automap/runs"),
        description="Where runs write, a folder for each; on a cluster all its nodes share it",
    )
    run_command: str | None = Field(
        default=None,
        description="How a node starts a run; none: python -m automap.executor.run, on this "
        "machine with the worker's own interpreter",
    )
    profile_command: str | None = Field(
        default=None,
        description="How a node starts a profile of the cluster; none: "
        "python -m automap.profiler.job, likewise",
    )
    running_jobs: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="Runs that a worker has in Ray at a time"
    )
    stop_seconds: Annotated[int, Field(ge=1, le=3600)] = Field(
        default=10, description="What a cancelled run has to end by itself before it is killed"
    )
    max_log_bytes: Annotated[int, Field(ge=2**16)] = Field(
        default=2**22, description="How much of a run's output is kept, the latest"
    )
    drift_threshold: Annotated[float, Field(gt=0, le=100)] = Field(
        default=THRESHOLD,
        description="Share by which a run's iterations or responses may be off its plan before "
        "another plan is suggested",
    )
    drift_window_iterations: Annotated[int, Field(ge=1, le=RECENT)] = Field(
        default=5, description="Of a run's latest iterations the medians are compared with its plan"
    )
    drift_pause_iterations: Annotated[int, Field(ge=1)] = Field(
        default=10, description="Of a run, at least, between two that another plan is looked for"
    )
    worker_health_file: Path | None = Field(
        default=None, description="A worker touches this file as long as it is well"
    )

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key.strip() for key in value.split(",") if key.strip())
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        scheme, separator, rest = url.partition("://")
        if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
            return f"postgresql+psycopg://{rest}"
        if scheme == "sqlite" and separator and rest.strip("/") not in ("", ":memory:"):
            return url
        raise ValueError("use sqlite:///PATH (a file) or postgresql://USER:PASSWORD@HOST/NAME")
