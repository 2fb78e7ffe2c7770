"""What is being worked on: ids that logs show and that follow the work to other processes.

A request binds its id, a plan or a job its own. What queues work stores `carried()` beside it, and
what takes it up, perhaps another process and later, does so within `resumed`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from structlog.contextvars import bound_contextvars, get_contextvars

from automap.executor.telemetry import traces

IDS = ("request_id", "plan_id", "job_id", "submission_id")
Carried = Mapping[str, str]
"""The ids by name, and the `traceparent` of the span that is open."""


@contextmanager
def bound(**ids: object) -> Iterator[None]:
    """Let every log line in here, and all that is carried from here, have these ids."""
    with bound_contextvars(**{name: str(value) for name, value in ids.items()}):
        yield


def carried() -> dict[str, str]:
    """The ids that are bound here, and the open span."""
    known = get_contextvars()
    ids = {name: str(known[name]) for name in IDS if name in known}
    parent = traces.traceparent()
    return ids if parent is None else {**ids, "traceparent": parent}


@contextmanager
def resumed(origin: Carried | None) -> Iterator[None]:
    """Go on with what was `carried` from elsewhere: its ids are bound, its span is the parent."""
    given = dict(origin or {})
    ids = {name: given[name] for name in IDS if name in given}
    with bound(**ids), traces.continued(given.get("traceparent")):
        yield
