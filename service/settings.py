"""The service's configuration: read once, from AUTOMAP_… variables, and passed on."""

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from automap.planner.runs import RECENT, THRESHOLD
from automap.service.telemetry.logs import LogFormat, LogLevel, LogSettings

PositiveSeconds = Annotated[float, Field(gt=0, le=86_400)]


SECRETS_FOLDER = "AUTOMAP_SECRETS_FOLDER"  # pragma: allowlist secret
"""A variable: the folder with a file for each setting that is kept out of the environment."""
_PREFIX = "AUTOMAP_"
_OTHER_VARIABLES = frozenset(
    {
        SECRETS_FOLDER,
        *("AUTOMAP_API_KEY", "AUTOMAP_LOCK_FOLDER", "AUTOMAP_RUN_FOLDERS"),
        *("AUTOMAP_CHAOS_JOURNAL", "AUTOMAP_CHROMIUM", "AUTOMAP_TEST_RUN"),
    }
)
"""Variables of clients, of jobs, and of our tests."""
_KUBERNETES_HOST = "_SERVICE_HOST"


def canonical_host(name: str) -> str:
    """A host's name in lower case, an address in its shortest form and without brackets."""
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return str(ip_address(bare)) if is_address(bare) else name.lower()


@lru_cache(maxsize=256)
def is_address(name: str) -> bool:
    """Whether a host is an IP address and not a name."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Settings(BaseSettings):
    """Every setting, with its default here and nowhere else."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, frozen=True, extra="ignore", validate_by_name=True
    )

    def __init__(self, **given: Any) -> None:
        """What is given wins over a file `automap_…` of the folder, and that over a variable."""
        given.setdefault("_secrets_dir", os.environ.get(SECRETS_FOLDER))
        super().__init__(**given)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, file_secret_settings, env_settings

    database_url: str = "sqlite:///.automap/automap.db"
    """A URL: sqlite:///PATH, or postgresql://USER:PASSWORD@HOST/NAME."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """Comma-separated, each with all scopes; when set, /v1 asks for Authorization: Bearer KEY."""
    allow_without_keys: bool = False
    """Serve on more than loopback without keys: whoever reaches the port may run code."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated names by which browsers may reach the service, beside localhost and IP
    addresses."""
    max_requests_per_minute: Annotated[int, Field(ge=1)] = 3000
    """Requests that a key may send in a minute."""
    max_plans_at_once: Annotated[int, Field(ge=1)] = 4
    """Requests of a key that a planner works on at the same time; queued plans are not counted."""
    max_queued: Annotated[int, Field(ge=1)] = 1000
    """Plans and jobs of one owner that may wait in the queues before no key of theirs may add
    another."""
    audit_days: Annotated[float, Field(gt=0, le=36_500)] = 90.0
    """How long the audit log is kept."""
    retention_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """How long plans and jobs are kept after their end; none: until they are deleted."""
    allowed_folders: Annotated[tuple[Path, ...] | None, NoDecode] = None
    """Comma-separated folders, on the machines that run jobs, below which the files and the code
    that jobs name must lie; none: any where the database has no keys, else what Automap ships and
    the runs' folder."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 2**20
    max_profile_bytes: Annotated[int, Field(ge=1024)] = 2**25
    """Largest body that brings a measured profile."""
    request_seconds: PositiveSeconds = 30.0
    """What a client may take to send the head of a request, and then its body."""
    profiles_folder: Path = Path(".automap/profiles")
    """Where a server lays out the stored profiles that it plans with."""
    max_time_limit_seconds: PositiveSeconds = 600.0
    """Largest search.time_limit_seconds that a spec may ask for."""
    planning_overhead_seconds: PositiveSeconds = 60.0
    """What planning may take beyond twice the spec's own time limit (a slow machine needs that)
    before it is ended."""
    planner_memory_bytes: Annotated[int, Field(ge=2**28)] = 2**33
    """Memory at which a planner process is ended."""
    max_simulated_sequences: Annotated[int, Field(ge=1)] = 10**8
    """Most sequences that the iterations of a simulation may have in all."""
    request_planners: Annotated[int, Field(ge=1, le=64)] = 1
    """Planner processes that answer waiting requests."""
    queue_planners: Annotated[int, Field(ge=0, le=64)] = 1
    """Planner processes that work on the queue; 0: another server does."""
    max_waiting_requests: Annotated[int, Field(ge=1, le=32)] = 8
    """Requests that may wait for a planner; one more is answered 503."""
    lease_seconds: PositiveSeconds = 15.0
    """A server or worker silent for so long has lost its job to the others."""
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """How often a plan or run is taken up before it counts as failed."""
    poll_seconds: PositiveSeconds = 1.0
    """How often the queue is looked at when nothing happens."""
    shutdown_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """What requests may still take once the service has been asked to stop."""
    log_format: LogFormat = "auto"
    """json or text; auto: text at a terminal, else JSON."""
    log_level: LogLevel = "info"
    """Least that is logged: debug, info, warning or error."""

    ray_address: str | None = Field(
        default=None, validation_alias=AliasChoices("AUTOMAP_RAY_ADDRESS", "RAY_ADDRESS")
    )
    """Where a worker submits runs, http://HOST:8265; none: a local Ray, on demand."""
    ray_folder: Path = Path(".automap/ray")
    """Where workers keep what a local Ray is found by."""
    runs_folder: Path = Path(".automap/runs")
    """Where runs write, a folder for each; on a cluster all its nodes share it."""
    job_environment: Annotated[tuple[str, ...], NoDecode] = ()
    """Comma-separated names of variables that jobs in a local Ray inherit beside those that say
    where things are and how to compute."""
    run_command: str | None = None
    """How a node starts a run; none: python -m automap.executor.run, on this machine with the
    worker's own interpreter."""
    profile_command: str | None = None
    """How a node starts a profile of the cluster; none: python -m automap.profiler.job,
    likewise."""
    running_jobs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Runs that a worker has in Ray at a time."""
    stop_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """What a cancelled run has to end by itself before it is killed."""
    max_log_bytes: Annotated[int, Field(ge=2**16)] = 2**22
    """How much of a run's output is kept, the latest."""
    drift_threshold: Annotated[float, Field(gt=0, le=100)] = THRESHOLD
    """Share by which a run's iterations or responses may be off its plan before another plan is
    suggested."""
    drift_window_iterations: Annotated[int, Field(ge=1, le=RECENT)] = 5
    """Latest iterations of a run whose medians are compared with its plan."""
    drift_pause_iterations: Annotated[int, Field(ge=1)] = 10
    """Least iterations of a run between two searches for another plan."""
    worker_health_file: Path | None = None
    """A worker touches this file as long as it is well."""

    @property
    def logs(self) -> LogSettings:
        """How processes of the service log."""
        return LogSettings(format=self.log_format, level=self.log_level)

    @property
    def on_loopback(self) -> bool:
        """Whether nobody but this machine reaches the service."""
        if is_address(self.host):
            return ip_address(self.host).is_loopback
        return self.host.lower() == "localhost"  # another name may stand for anything

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split_keys(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        keys = tuple(key.strip() for key in value.split(",") if key.strip())
        if value and not keys:
            raise ValueError("names no key; give one, or leave the variable out")
        return keys

    @field_validator("allowed_hosts", "allowed_folders", "job_environment", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in map(canonical_host, names):
            if any(sign in name for sign in ":/[*") and not is_address(name):
                raise ValueError(f"{name!r} is no name: leave out scheme, port and wildcards")
        return tuple(map(canonical_host, names))

    @field_validator("allowed_folders")
    @classmethod
    def _whole_paths(cls, folders: tuple[Path, ...] | None) -> tuple[Path, ...] | None:
        for folder in folders or ():
            if not folder.is_absolute():
                raise ValueError(f"{str(folder)!r} is a relative path: write all of it")
        return folders

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        scheme, separator, rest = url.partition("://")
        if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
            return f"postgresql+psycopg://{rest}"
        if scheme == "sqlite" and separator and rest.strip("/") not in ("", ":memory:"):
            return url
        raise ValueError("use sqlite:///PATH (a file) or postgresql://USER:PASSWORD@HOST/NAME")


def misspelt_settings(names: Iterable[str], passed_on: Iterable[str] = ()) -> Iterator[str]:
    """What to say of each of these variables that is named as a setting and that nobody reads.

    A misspelt one would be ignored in silence. `passed_on`: names of variables that are for others.
    """
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    given = sorted(names)
    # Kubernetes tells pods of a Service automap-… by variables that begin so.
    services = [
        name.removesuffix(_KUBERNETES_HOST) for name in given if name.endswith(_KUBERNETES_HOST)
    ]
    foreign = tuple(f"{each}_{kind}" for each in services for kind in ("SERVICE_", "PORT"))
    for name in given:
        written = name.upper()
        if not written.startswith(_PREFIX) or name.startswith(foreign):
            continue
        if written in known | _OTHER_VARIABLES or name in passed_on:
            continue
        close = get_close_matches(written, sorted(known | _OTHER_VARIABLES), n=1, cutoff=0.8)
        meant = f": did you mean {close[0]}?" if close else ""
        yield f"the variable {name} is no setting and is ignored{meant}"
