"""Ray's job submission, as the worker needs it. The only module of the service that imports Ray.

Everything goes through the dashboard's HTTP, so the cluster may be anywhere: the plan and the
settings travel as the job's working directory, its output comes back as the job's log.
"""

import hashlib
import io
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import httpx

from automap.service.telemetry import logs

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient


REQUEST_SECONDS = 10.0
"""What the dashboard may take for an answer; less than a lease."""
_SILENCE_SECONDS = 300.0
"""A log that grows by nothing for so long is opened anew: the connection may be dead."""
_GROWN_SECONDS = 0.3
"""How often the cluster looks whether a log has grown."""


class RayUnavailableError(Exception):
    """Ray does not answer, or not sensibly; it may do so later."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """A submitted job as Ray sees it."""

    status: Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
    exit_code: int | None
    """The entrypoint's exit code; negative: it died of this signal. None: there is none (yet)."""
    message: str
    node_id: str | None
    """Where the entrypoint runs, and where its log is."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.status not in ("PENDING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Submission:
    """What to run under which name."""

    submission_id: str
    entrypoint: str
    files: dict[str, bytes]
    """Put into the working directory of the entrypoint."""
    stop_seconds: int
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the entrypoint."""


class RayJobs:
    """Jobs of one Ray cluster."""

    def __init__(self, address: str) -> None:
        """Connects to the dashboard at `address`, http://HOST:PORT or what else Ray accepts.

        Raises:
            RayUnavailableError: nothing answers there.
        """
        self._client = _connected(address)

    def find(self, submission_id: str) -> RayJob | None:
        """The job of this name; None: this Ray cluster has none.

        Raises:
            RayUnavailableError: see there.
        """
        try:
            found = self._client.get_job_info(submission_id)
        except Exception as error:
            if "status code 404" in str(error):
                return None
            raise RayUnavailableError(str(error)) from error
        return RayJob(
            status=found.status.value,
            exit_code=found.driver_exit_code,
            message=found.message or "",
            node_id=found.driver_node_id,
        )

    def submit(self, submission: Submission) -> None:
        """Start it; harmless if Ray has a job of this name, which is then the one that runs.

        Raises:
            RayUnavailableError: see there; it may run nevertheless.
        """
        environment = {
            **submission.environment,
            # Between SIGTERM and SIGKILL, when the job is stopped.
            "RAY_JOB_STOP_WAIT_TIME_S": str(submission.stop_seconds),
        }
        try:
            working_dir = self._uploaded(submission.files)
            self._client.submit_job(
                entrypoint=submission.entrypoint,
                submission_id=submission.submission_id,
                runtime_env={"working_dir": working_dir, "env_vars": environment},
            )
        except Exception as error:
            # Ray has one error for all: what counts is whether it knows the job now.
            if self.find(submission.submission_id) is None:
                raise RayUnavailableError(str(error)) from error

    def _uploaded(self, files: Mapping[str, bytes]) -> str:
        """The URI of a package of these files in the cluster.

        Ray's client makes one from a folder, with temporary files that stay where this process is
        killed meanwhile.
        """
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in sorted(files.items()):
                info = zipfile.ZipInfo(name)  # of no date: the same files are the same package
                info.external_attr = 0o600 << 16  # for the user of the cluster alone
                archive.writestr(info, content)
        package = f"_ray_pkg_{hashlib.sha256(packed.getvalue()).hexdigest()[:32]}.zip"
        client: Any = self._client
        if not client._package_exists(f"gcs://{package}"):  # which also keeps it for a while
            path = f"/api/packages/gcs/{package}"
            answer = client._do_request("PUT", path, data=packed.getvalue())
            if answer.status_code != httpx.codes.OK:
                raise RayUnavailableError(f"{path}: {answer.text[:200]}")
        return f"gcs://{package}"

    def stop(self, submission_id: str) -> None:
        """Ask for its end: SIGTERM, and SIGKILL when its time to stop is over.

        Raises:
            RayUnavailableError: see there.
        """
        try:
            self._client.stop_job(submission_id)
        except Exception as error:
            raise RayUnavailableError(str(error)) from error

    async def follow(self, submission_id: str, job: RayJob, *, skip: int) -> AsyncIterator[bytes]:
        """What the job prints, from the byte `skip` on, as it comes; it never ends by itself.

        Raises:
            RayUnavailableError: the log cannot be read, or not any more.
        """
        parameters = {**_log_file(submission_id, job), "interval": _GROWN_SECONDS}
        timeout = httpx.Timeout(REQUEST_SECONDS, read=_SILENCE_SECONDS)
        async with self._http(timeout) as http:
            try:
                async with http.stream("GET", "/api/v0/logs/stream", params=parameters) as answer:
                    if answer.status_code != httpx.codes.OK:
                        raise RayUnavailableError(f"no log: {(await answer.aread())[:200]!r}")
                    async for piece in answer.aiter_raw():
                        wanted = piece[min(skip, len(piece)) :]
                        skip -= len(piece) - len(wanted)
                        if wanted:
                            yield wanted
            except httpx.HTTPError as error:
                raise RayUnavailableError(f"no log: {error or type(error).__name__}") from error

    async def read(self, submission_id: str, job: RayJob, *, skip: int) -> bytes:
        """What the job has printed so far, from the byte `skip` on.

        Raises:
            RayUnavailableError: the log cannot be read.
        """
        async with self._http(httpx.Timeout(REQUEST_SECONDS)) as http:
            try:
                answer = await http.get("/api/v0/logs/file", params=_log_file(submission_id, job))
            except httpx.HTTPError as error:
                raise RayUnavailableError(f"no log: {error or type(error).__name__}") from error
        if answer.status_code != httpx.codes.OK:
            raise RayUnavailableError(f"no log: {answer.text[:200]}")
        return answer.content[skip:]

    def _http(self, timeout: httpx.Timeout) -> httpx.AsyncClient:
        # Ray's own clients read logs as text: half a character at the end of a buffer ends them.
        # So we ask for the bytes, with the address and the credentials of Ray's client.
        client: Any = self._client
        return httpx.AsyncClient(
            base_url=client._address,
            headers=client._headers,
            cookies=client._cookies,
            verify=client._ssl_context if client._ssl_context is not None else True,
            timeout=timeout,
            trust_env=False,
        )


def _log_file(submission_id: str, job: RayJob) -> dict[str, str | float]:
    if job.node_id is None:
        raise RayUnavailableError("no log: the job was never started on a node")
    # By node and name: by submission id, Ray 2.60 finds no log.
    return {
        "node_id": job.node_id,
        "filename": f"job-driver-{submission_id}.log",
        "lines": -1,
    }


def _connected(address: str) -> "JobSubmissionClient":
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise RayUnavailableError(f"Ray is not installed here: {error}") from error

    logs.take_over("ray")

    class Client(JobSubmissionClient):  # type: ignore[misc]  # Ray is untyped here
        """Waits for no answer for ever, as Ray's own client does."""

        def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:
            options.setdefault("timeout", REQUEST_SECONDS)
            return super()._do_request(method, endpoint, **options)

    try:
        return Client(address)
    except Exception as error:  # Ray has no exception of its own for this
        raise RayUnavailableError(f"no Ray answers at {address}: {error}") from error
