"""What a worker submits to Ray for a job: a program of the executor or of the profiler."""

import json
import shlex
import sys

from automap.executor.folders import RunFolders
from automap.executor.telemetry import traces
from automap.profiler.settings import ProfileSettings
from automap.service.queues.job_queue import JobClaim
from automap.service.runs.checked_settings import RunSettings, resuming
from automap.service.schemas.measurements import MeasureJobSettings
from automap.service.settings import Settings
from automap.service.worker.ray_jobs import Submission

LOCK_SECONDS = 60.0
"""Seconds for what a killed attempt has left behind to be gone from the devices."""


def submission_of(
    held: JobClaim, settings: Settings, folders: RunFolders | None = None
) -> Submission:
    """The next attempt of a job. Its folder is its own: what earlier attempts left is there.

    What a run opens is below `folders`; without them it may open anything.
    """
    if held.kind == "run":
        command, arguments, files = _run(held, settings, folders)
    else:
        command, arguments, files = _profile(held, settings)
    parent = traces.traceparent()
    return Submission(
        submission_id=held.submission_id,
        # exec: the program itself gets the signals, and its exit code is the job's.
        entrypoint=f"exec {command} {shlex.join(arguments)}",
        files=files,
        stop_seconds=settings.stop_seconds,
        environment={} if parent is None else {"TRACEPARENT": parent},
    )


def _run(
    held: JobClaim, settings: Settings, folders: RunFolders | None
) -> tuple[str, list[str], dict[str, bytes]]:
    run_settings = resuming(RunSettings.model_validate(held.settings))
    arguments = [
        *("--plan", "plan.json", "--settings", "settings.json"),
        *("--output", held.output, "--ray-address", "auto"),
    ]
    files = {
        "plan.json": json.dumps(held.plan).encode(),
        "settings.json": run_settings.model_dump_json().encode(),
    }
    if folders is not None:
        arguments += ["--folders", "folders.json"]
        files["folders.json"] = folders.as_json().encode()
    return settings.run_command or _python(settings, "automap.executor.run"), arguments, files


def _profile(held: JobClaim, settings: Settings) -> tuple[str, list[str], dict[str, bytes]]:
    measure = MeasureJobSettings.model_validate(held.settings)
    profile_settings = ProfileSettings(
        **measure.model_dump(exclude={"make_default"}),
        output=held.output,
        ray_address="auto",
        wait_seconds=LOCK_SECONDS,
    )
    files = {"settings.json": profile_settings.model_dump_json().encode()}
    command = settings.profile_command or _python(settings, "automap.profiler.job")
    return command, ["--settings", "settings.json"], files


def _python(settings: Settings, module: str) -> str:
    here = settings.ray_address is None
    return f"{shlex.quote(sys.executable) if here else 'python'} -m {module}"
