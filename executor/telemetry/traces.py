"""Spans by OpenTelemetry: off, and nothing of it imported, unless the environment says where to.

Everything is set by the standard variables, OTEL_EXPORTER_OTLP_ENDPOINT first; spans are sent as
OTLP over HTTP. The service and the runs that it has Ray start speak of one trace.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SEND_EVERY_MILLISECONDS = 1000.0
"""Processes that plan or run may be ended at any time: what they know is sent soon."""


@cache
def is_on() -> bool:
    """Whether spans are wanted, by the environment that this process was started with."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    off = off or os.environ.get("OTEL_TRACES_EXPORTER", "") == "none"
    wanted = not off and any(os.environ.get(name) for name in _ENDPOINTS)
    return wanted and find_spec("opentelemetry") is not None


def start(service_name: str) -> None:
    """Send the spans of this process under this name, unless OTEL_SERVICE_NAME gives another."""
    if not is_on():
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service_name}
    provider = TracerProvider(resource=Resource.create(named))
    every = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else _SEND_EVERY_MILLISECONDS
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=every))
    trace.set_tracer_provider(provider)


@contextmanager
def span(name: str, *, serves: bool = False, **attributes: str | float) -> Iterator[None]:
    """A span around what is done in here; an exception that leaves it is noted in it.

    `serves`: it answers a request that came over the network.
    """
    if not is_on():
        yield
        return
    from opentelemetry import trace

    known = {f"automap.{key}": value for key, value in attributes.items()}
    kind = trace.SpanKind.SERVER if serves else trace.SpanKind.INTERNAL
    with trace.get_tracer("automap").start_as_current_span(name, kind=kind, attributes=known):
        yield


@contextmanager
def past_span(
    name: str, *, start_seconds: float, end_seconds: float, **attributes: str | float
) -> Iterator[None]:
    """A span of what is over, in Unix time; those made in here are its children."""
    if not is_on():
        yield
        return
    from opentelemetry import trace

    known = {f"automap.{key}": value for key, value in attributes.items()}
    start, end = (round(1e9 * seconds) for seconds in (start_seconds, end_seconds))
    made = trace.get_tracer("automap").start_span(name, start_time=start, attributes=known)
    with trace.use_span(made, end_on_exit=False):
        yield
    made.end(end_time=end)


def describe_request(*, method: str, route: str, status: int) -> None:
    """Say of the open span which request it answers, and how."""
    if not is_on():
        return
    from opentelemetry import trace

    known = trace.get_current_span()
    known.update_name(f"{method} {route}")
    known.set_attribute("http.request.method", method)
    known.set_attribute("http.route", route)
    known.set_attribute("http.response.status_code", status)
    if status >= 500:
        known.set_status(trace.StatusCode.ERROR)


def traceparent() -> str | None:
    """The open span, as other processes are told; None: there is none."""
    if not is_on():
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers.get("traceparent")


@contextmanager
def continued(parent: str | None) -> Iterator[None]:
    """Let spans in here be children of a span of another process."""
    if parent is None or not is_on():
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": parent}))
    try:
        yield
    finally:
        context.detach(token)


def environment() -> Mapping[str, str]:
    """The variables by which this process sends its spans, for processes of its own."""
    if not is_on():
        return {}
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
