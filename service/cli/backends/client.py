"""HTTP to a running service; its problem objects become our errors."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from pydantic import TypeAdapter, ValidationError

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, NotExportableError
from automap.planner.studies import ExplainedInfeasibleError, Refusal
from automap.service.cli.inputs.files import error_lines
from automap.service.cli.terminal.failures import BadInputError, ServerError, UnreachableError
from automap.service.schemas.problems import Problem

ANSWER_SECONDS = 120.0
"""What a request may take beyond the search itself: queueing, start-up, transfer."""
SEARCHES_SECONDS = 7200.0
"""What several searches may take together; the service itself ends them sooner."""
SILENCE_SECONDS = 60.0
"""How long a stream of events may be silent: a server that lives says so more often."""

Answer = TypeVar("Answer")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Service:
    """A running service and the key to it."""

    server: str
    api_key: str | None

    def url(self, path: str) -> str:
        """The address of a path below /v1."""
        return f"{self.server.rstrip('/')}/v1/{path}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        data: object = None,
        seconds: float = ANSWER_SECONDS,
    ) -> httpx.Response:
        """The answer to a request.

        Raises:
            BadInputError, InfeasibleError, NoSolutionInTimeError: what the service found wrong.
            ServerError: it cannot be reached, or it failed.
        """
        with self._telling(), self._client(seconds) as client:
            response = client.request(method, self.url(path), json=data)
        if response.status_code >= 400:
            raise _failure(response, self.server)
        return response

    def answer(self, path: str, data: object, model: type[Answer]) -> Answer:
        """The answer to a POST that may take as long as its searches do.

        Raises:
            BadInputError, InfeasibleError, NoSolutionInTimeError, ServerError: as `ask`.
        """
        response = self.ask("POST", path, data=data, seconds=SEARCHES_SECONDS)
        return parsed(model, response.content, self.server)

    def events(self, path: str, *, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Server-sent events with their ids, until the service ends the stream or is lost.

        Raises:
            BadInputError, ServerError: as `ask`.
        """
        headers = {"Last-Event-ID": str(after)}
        with (
            self._telling(),
            self._client(SILENCE_SECONDS) as client,
            client.stream("GET", self.url(path), headers=headers) as response,
        ):
            if response.status_code >= 400:
                response.read()
                raise _failure(response, self.server)
            event_id = after
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = int(value)
                elif name == "data":  # the service sends each event's data on one line, last
                    yield event_id, json.loads(value)

    def _client(self, seconds: float) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        # A proxy from the environment would not reach a service on this machine.
        proxied = httpx.URL(self.server).host not in LOOPBACK
        return httpx.Client(
            headers=headers, timeout=httpx.Timeout(10.0, read=seconds), trust_env=proxied
        )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except httpx.InvalidURL as error:
            raise BadInputError(f"--server: {self.server!r} is no URL: {error}") from None
        except httpx.UnsupportedProtocol:
            raise BadInputError(
                f"--server: {self.server!r} must begin with http:// or https://"
            ) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(
                f"--server: cannot reach {self.server}: {reason}",
                ["is it running there? `automap serve` starts a service"],
            ) from None
        except httpx.HTTPError as error:
            cause = error or type(error).__name__
            raise ServerError(f"no answer from {self.server}: {cause}") from None


def plan_id_of(source: str) -> str | None:
    """The source itself, if it is an id and no file."""
    try:
        return None if Path(source).exists() else str(UUID(source))
    except (ValueError, OSError):
        return None


def parsed(model: type[Answer] | TypeAdapter[Answer], content: bytes, server: str) -> Answer:
    """What a service answered.

    Raises:
        ServerError: it is nothing that this version knows.
    """
    adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        raise ServerError(f"{server} answers as another version would: {error}") from None


def _failure(response: httpx.Response, server: str) -> Exception:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return ServerError(f"{server} answered {response.status_code} without a problem object")
    match problem.type.rpartition("/")[2]:
        case "infeasible" if problem.remedies or problem.untried:
            return ExplainedInfeasibleError(
                Refusal(reasons=problem.reasons, remedies=problem.remedies, untried=problem.untried)
            )
        case "infeasible":
            return InfeasibleError(problem.reasons)
        case "not-exportable":
            return NotExportableError(server, problem.reasons)
        case "no-solution-in-time" if problem.lower_bound_seconds is not None:
            return NoSolutionInTimeError(problem.lower_bound_seconds)
    if problem.status >= 500:
        return ServerError(f"{server}: {problem.detail}")
    return BadInputError(f"{server}: {problem.detail}", error_lines(problem.errors))
