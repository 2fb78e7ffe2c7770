"""A running service from Python; users import it as `automap.client`."""

from automap.service.client.client import Client
from automap.service.client.errors import (
    ClientError,
    NoAnswerError,
    OtherVersionError,
    ProblemError,
    UnreachableError,
)
from automap.service.client.transport import Event

__all__ = [
    "Client",
    "ClientError",
    "Event",
    "NoAnswerError",
    "OtherVersionError",
    "ProblemError",
    "UnreachableError",
]
