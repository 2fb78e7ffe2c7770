"""HTTP to a service: requests that are tried again where that is safe, and streams of events."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from automap.service.client.errors import (
    ClientError,
    NoAnswerError,
    OtherVersionError,
    ProblemError,
    UnreachableError,
)
from automap.service.schemas.problems import Problem

ANSWER_SECONDS = 120.0
"""What a request may take beyond a search: queueing, start-up, transfer."""
SEARCHES_SECONDS = 7200.0
"""What several searches may take together; the service itself ends them sooner."""
SILENCE_SECONDS = 60.0
"""How long a stream of events may be silent: a server that lives says so more often."""
CONNECT_SECONDS = 10.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SAFE_METHODS = ("GET", "PUT", "DELETE")
PASSING = ("busy", "not-ready", "request-in-progress")
"""Problems that may be gone a moment later."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Event:
    """What happened in a job: its number, from 1 without gaps, and what the service says of it."""

    id: int
    data: dict[str, Any]

    @property
    def type(self) -> str:
        """The kind of event, such as `iteration`; docs/guides/running.md lists them."""
        return str(self.data["type"])


class Transport:
    """One service, the key to it, and its connections."""

    def __init__(
        self, server: str, api_key: str | None = None, *, retries: int = 5, pause_seconds: float = 1
    ) -> None:
        """Connects when it is first asked.

        Args:
            server: Its address, such as http://127.0.0.1:8000.
            api_key: A key of the service; none for one that asks for none.
            retries: How often a request that may be repeated is.
            pause_seconds: Between two tries.
        """
        self.server = server.rstrip("/")
        self._retries = retries
        self._pause_seconds = pause_seconds
        # A proxy from the environment would not reach a service on this machine.
        proxied = httpx.URL(server).host not in LOOPBACK
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.Client(headers=headers, trust_env=proxied)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def url(self, path: str) -> str:
        """The address of a path below /v1."""
        return f"{self.server}/v1/{path}"

    def request(
        self,
        method: str,
        path: str,
        *,
        data: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> httpx.Response:
        """The answer to a request; one that may be repeated is, as long as nobody answers.

        A POST may be if its headers have an `Idempotency-Key`, or if it never left.

        Raises:
            ProblemError: the service refuses or fails.
            UnreachableError, NoAnswerError: it does not answer.
        """
        headers = headers or {}
        repeatable = method in SAFE_METHODS or "Idempotency-Key" in headers

        def ask() -> httpx.Response:
            return self._asked_once(method, path, data=data, headers=headers, seconds=seconds)

        return self._tried(ask, repeatable=repeatable)

    def delete(self, path: str) -> None:
        """Delete what has this path; that it is gone is no error after a try whose answer was lost.

        Raises:
            ProblemError: the service refuses or fails, or there was nothing to delete.
            UnreachableError, NoAnswerError: it does not answer.
        """
        may_be_done = False

        def ask() -> None:
            nonlocal may_be_done
            try:
                self._asked_once("DELETE", path)
            except NoAnswerError:
                may_be_done = True
                raise
            except ProblemError as error:
                if not may_be_done or error.kind != "not-found":
                    raise

        self._tried(ask, repeatable=True)

    def _asked_once(
        self,
        method: str,
        path: str,
        *,
        data: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> httpx.Response:
        with self._failures():
            answer = self._http.request(
                method, self.url(path), json=data, headers=headers, timeout=_limits(seconds)
            )
        if answer.is_error:
            raise problem_in(answer)
        return answer

    def answer(
        self, model: type[Answer] | TypeAdapter[Answer], method: str, path: str, **options: Any
    ) -> Answer:
        """The answer to a request as what it is; `options` are those of `request`.

        Raises:
            OtherVersionError: it is something else.
            ProblemError, UnreachableError, NoAnswerError: see `request`.
        """
        return self.parsed(model, self.request(method, path, **options).content)

    def parsed(self, model: type[Answer] | TypeAdapter[Answer], content: bytes) -> Answer:
        """What the service has sent.

        Raises:
            OtherVersionError: it is nothing that this version knows.
        """
        adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
        try:
            return adapter.validate_json(content)
        except ValidationError as error:
            raise OtherVersionError(
                f"{self.server} answers as another version would: {error}"
            ) from None

    def events(self, path: str, *, after: int = 0, retries: int = 30) -> Iterator[Event]:
        """Server-sent events after this one, to the last there will be, over lost connections.

        Raises:
            ProblemError: the service refuses.
            ClientError: it did not answer, so many times in a row.
        """
        last, failures = after, 0
        while True:
            try:
                for event in self._stream(path, after=last):
                    if event is None:
                        return
                    last, failures = event.id, 0
                    yield event
            except ClientError as error:
                refused = isinstance(error, ProblemError) and error.problem.status < 500
                failures += 1
                if refused or failures > retries:
                    raise
            time.sleep(self._pause_seconds)

    def _stream(self, path: str, *, after: int) -> Iterator[Event | None]:
        """The events of one connection; None: there will be no more."""
        with (
            self._failures(),
            self._http.stream(
                "GET",
                self.url(path),
                headers={"Last-Event-ID": str(after)},
                timeout=_limits(SILENCE_SECONDS),
            ) as answer,
        ):
            if answer.is_error:
                answer.read()
                raise problem_in(answer)
            if answer.status_code == httpx.codes.NO_CONTENT:
                yield None
            event_id = after
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = int(value)
                elif name == "data":  # the service sends each event's data on one line, last
                    yield Event(event_id, json.loads(value))

    def _tried(self, ask: Callable[[], Answer], *, repeatable: bool) -> Answer:
        for _ in range(self._retries):
            try:
                return ask()
            except ClientError as error:
                if not _may_pass(error, repeatable=repeatable):
                    raise
            time.sleep(self._pause_seconds)
        return ask()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = str(error) or type(error).__name__
            raise UnreachableError(f"cannot reach {self.server}: {reason}") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise  # what the caller gave is wrong
        except httpx.HTTPError as error:
            cause = error or type(error).__name__
            raise NoAnswerError(f"no answer from {self.server}: {cause}") from None


def problem_in(answer: httpx.Response) -> ClientError:
    """What the service says is wrong."""
    try:
        return ProblemError(Problem.model_validate_json(answer.content))
    except ValidationError:
        server = f"{answer.request.url.scheme}://{answer.request.url.netloc.decode()}"
        return OtherVersionError(f"{server} answered {answer.status_code} without a problem object")


def _may_pass(error: ClientError, *, repeatable: bool) -> bool:
    """Whether another try may be answered, and does nothing twice."""
    if isinstance(error, UnreachableError):  # nothing was sent
        return True
    if not repeatable:
        return False
    return isinstance(error, NoAnswerError) or (
        isinstance(error, ProblemError) and error.kind in PASSING
    )


def _limits(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(CONNECT_SECONDS, read=seconds)
