"""A running service from Python.

    from automap.client import Client

    with Client("http://127.0.0.1:8000") as service:
        record = service.plan(spec)

The types of what it answers are those of the planner and of `automap.service.schemas`.
"""

from automap.service.client import (
    Client,
    ClientError,
    Event,
    NoAnswerError,
    OtherVersionError,
    ProblemError,
    UnreachableError,
)

__all__ = [
    "Client",
    "ClientError",
    "Event",
    "NoAnswerError",
    "OtherVersionError",
    "ProblemError",
    "UnreachableError",
]
