"""A running service as the commands ask it: its failures become ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from pydantic import TypeAdapter

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, NotExportableError
from automap.planner.studies import ExplainedInfeasibleError, Refusal
from automap.service.cli.inputs.files import error_lines
from automap.service.cli.terminal.failures import BadInputError, ServerError, UnreachableError
from automap.service.client import (
    Client,
    ClientError,
    ProblemError,
)
from automap.service.client import UnreachableError as NobodyThereError

Answer = TypeVar("Answer")


class Service:
    """A running service and the key to it."""

    def __init__(self, server: str, api_key: str | None) -> None:
        self.server = server
        self._api_key = api_key

    @cached_property
    def client(self) -> Client:
        """What speaks to it; a command that cannot reach it says so at once."""
        return Client(self.server, self._api_key, retries=0)

    def url(self, path: str) -> str:
        """The address of a path below /v1."""
        return self.client.url(path)

    def ask(self, method: str, path: str, *, data: object = None, **options: Any) -> httpx.Response:
        """The answer to a request; `options` are those of `Client.request`.

        Raises:
            BadInputError, InfeasibleError, NoSolutionInTimeError: what the service found wrong.
            ServerError: it cannot be reached, or it failed.
        """
        with self.telling():
            return self.client.request(method, path, data=data, **options)

    def delete(self, path: str) -> None:
        """Delete what has this path; see `Client.delete`.

        Raises:
            BadInputError, ServerError: as `ask`.
        """
        with self.telling():
            self.client.delete(path)

    def events(self, job_id: object) -> Iterator[dict[str, Any]]:
        """What happens in a job, to its end.

        Raises:
            BadInputError, ServerError: as `ask`.
        """
        with self.telling():
            for event in self.client.job_events(str(job_id)):
                yield event.data

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Report what the client raises as the failures of a command.

        Raises:
            BadInputError, InfeasibleError, NoSolutionInTimeError, ServerError: as `ask`.
        """
        try:
            yield
        except httpx.InvalidURL as error:
            raise BadInputError(f"--server: {self.server!r} is no URL: {error}") from None
        except httpx.UnsupportedProtocol:
            raise BadInputError(
                f"--server: {self.server!r} must begin with http:// or https://"
            ) from None
        except NobodyThereError as error:
            raise UnreachableError(
                f"--server: {error}", ["is it running there? `automap serve` starts a service"]
            ) from None
        except ProblemError as error:
            raise _failure(error, self.server) from None
        except ClientError as error:
            raise ServerError(str(error)) from None


def plan_id_of(source: str) -> str | None:
    """The source itself, if it is an id and no file."""
    try:
        return None if Path(source).exists() else str(UUID(source))
    except (ValueError, OSError):
        return None


def uuid_of(text: str, *, listed_by: str) -> UUID:
    """The id that somebody typed.

    Args:
        text: what was typed.
        listed_by: the command that shows which ids there are.

    Raises:
        BadInputError: it is none.
    """
    try:
        return UUID(text)
    except ValueError:
        raise BadInputError(f"{text!r} is no id; `{listed_by}` lists those there are") from None


def parsed(model: type[Answer] | TypeAdapter[Answer], content: bytes, service: Service) -> Answer:
    """What a service answered.

    Raises:
        ServerError: it is nothing that this version knows.
    """
    with service.telling():
        return service.client.parsed(model, content)


def _failure(error: ProblemError, server: str) -> Exception:
    problem = error.problem
    match error.kind:
        case "unauthorized":
            remedies = ["give a key with --api-key, or in AUTOMAP_API_KEY"]
            return BadInputError(f"{server}: {problem.detail}", remedies)
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
