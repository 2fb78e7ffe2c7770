"""Logs: an event per line, as JSON or for people, with the ids of what is being worked on.

Code logs through the standard library; fields of their own are passed as `extra`. What must not be
in a log is not given to it: no body, no key, no statement's parameters.
"""

import logging
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import structlog

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]
_CHATTY = ("alembic", "httpx", "httpcore", "urllib3", "opentelemetry")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a process logs."""

    format: LogFormat = "auto"
    """auto: for people at a terminal, else JSON."""
    level: LogLevel = "info"


DEFAULT = LogSettings()


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send what this process logs to standard error, and nowhere else."""
    stream = sys.stderr if stream is None else stream
    at_terminal = stream.isatty()
    for_people = settings.format == "text" or (settings.format == "auto" and at_terminal)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_colours,
                *(_for_people(colors=at_terminal) if for_people else _as_json()),
            ],
        )
    )
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def take_over(name: str) -> None:
    """Let a library that has set up its own logging log as everything else does."""
    library = logging.getLogger(name)
    library.handlers.clear()
    library.propagate = True


def _for_people(*, colors: bool) -> list[Any]:
    shown = structlog.dev.ConsoleRenderer(
        colors=colors,
        timestamp_key="time",
        exception_formatter=structlog.dev.plain_traceback,  # no variables, which hold bodies
    )
    return [shown]


def _as_json() -> list[Any]:
    return [
        structlog.processors.format_exc_info,
        structlog.processors.EventRenamer("message"),
        structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
    ]


def _without_colours(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Leave out the copy of a message that uvicorn adds for terminals."""
    event.pop("color_message", None)
    return event
