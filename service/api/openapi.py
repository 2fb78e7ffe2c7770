"""The OpenAPI document: problem responses, and the schemas of bodies that our own loader reads."""

import json
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from automap.planner import ExplainOptions, ReplanOptions
from automap.planner.spec import JobSpec
from automap.service.api.error_responses import MEDIA_TYPE
from automap.service.api.scopes import scope_of
from automap.service.schemas.access import NewApiKey, Scope
from automap.service.schemas.budgets import NewBudget
from automap.service.schemas.catalogue import NewCluster
from automap.service.schemas.descriptions import DescriptionPatch
from automap.service.schemas.jobs import JobPatch, JobRequest
from automap.service.schemas.measurements import MeasureRequest
from automap.service.schemas.problems import Problem
from automap.service.schemas.profiles import NewProfile
from automap.service.schemas.studies import (
    CompareRequest,
    EstimateRequest,
    FrontRequest,
    SimulateRequest,
    WhatIfRequest,
)

PUBLISHED: tuple[type[BaseModel], ...] = (
    JobSpec,
    JobRequest,
    EstimateRequest,
    CompareRequest,
    FrontRequest,
    WhatIfRequest,
    ExplainOptions,
    ReplanOptions,
    SimulateRequest,
    NewCluster,
    NewProfile,
    MeasureRequest,
    NewApiKey,
    NewBudget,
    DescriptionPatch,
    JobPatch,
    Problem,
)
DESCRIPTION = """Finds out which model runs on which GPUs, with which parallelism and in which
order, when LLMs are post-trained with reinforcement learning; proves how good the answer is; stores
it; runs it on Ray and shows what it took beside what was predicted.

Errors are problem objects (RFC 9457). Bodies are JSON or YAML."""

TAGS = [
    {"name": "plans", "description": "Jobs and the plans that are made of them; studies of a plan"},
    {"name": "jobs", "description": "Runs of plans, and measurements of the cluster, on Ray"},
    {"name": "estimates", "description": "What a placement costs, without a search"},
    {"name": "clusters", "description": "Clusters that specs can name"},
    {"name": "profiles", "description": "What was measured on devices, to price plans with"},
    {"name": "catalogue", "description": "Models and GPUs that are known by name"},
    {"name": "access", "description": "Keys to the service, and who did what with them"},
    {"name": "schemas", "description": "JSON Schemas of what users write"},
    {"name": "health", "description": "For probes and for Prometheus"},
]
CSV_TOO: dict[str, Any] = {
    "description": "A page; or, as CSV, all rows",
    "content": {"text/csv": {"schema": {"type": "string"}}},
}
_HEADERS = {
    "Location": "Where the new resource is",
    "Retry-After": "Seconds after which to ask again",
    "Preference-Applied": "The preference that was followed",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem responses of a route, 500 among them, for its `responses`."""
    return {status: _response(HTTPStatus(status)) for status in (*statuses, 500)}


def response_headers(*names: str) -> dict[str, Any]:
    """Headers of a response, for its entry in `responses`."""
    return {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}


def _response(status: HTTPStatus) -> dict[str, Any]:
    return {
        "description": status.phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def install(app: FastAPI) -> None:
    """Let the application publish the complete document, made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        tags=TAGS,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    _, definitions = models_json_schema(
        [(model, "validation") for model in PUBLISHED],
        ref_template="#/components/schemas/{model}",
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions["$defs"])
    # The framework's own error bodies never leave the service.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document = _with_named_pages(document)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation)
            if path.startswith(("/v1/", "/metrics")):
                _show_access(operation, scope_of(method, path))
    return document


def _with_named_pages(document: dict[str, Any]) -> dict[str, Any]:
    """`PlanSummaryPage` for `Page[PlanSummary]`: no generated client can call a class that.

    A page of a union is called after the first one of it.
    """
    schemas: dict[str, dict[str, Any]] = document["components"]["schemas"]
    text = json.dumps(document)
    for name, schema in schemas.items():
        if schema.get("title", "").startswith("Page["):
            items = schema["properties"]["items"]["items"]
            reference: str = items.get("oneOf", [items])[0]["$ref"]
            page = f"{reference.rpartition('/')[2]}Page"
            text = text.replace(json.dumps(name), json.dumps(page))
            text = text.replace(f'schemas/{name}"', f'schemas/{page}"')
            text = text.replace(json.dumps(schema["title"]), json.dumps(page))
    named: dict[str, Any] = json.loads(text)
    return named


def _complete(operation: dict[str, Any]) -> None:
    """Problem responses that every operation has, in place of the framework's."""
    responses = operation["responses"]
    framework = responses.get("422", {}).get("content", {}).get("application/json")
    if framework is not None:
        responses["422"] = _response(HTTPStatus.UNPROCESSABLE_ENTITY)
    responses.setdefault("403", _response(HTTPStatus.FORBIDDEN))
    if "requestBody" in operation:
        responses.setdefault("408", _response(HTTPStatus.REQUEST_TIMEOUT))
    responses.setdefault("500", _response(HTTPStatus.INTERNAL_SERVER_ERROR))


def _show_access(operation: dict[str, Any], scope: Scope) -> None:
    """What a key needs, once the service asks for keys; the empty one says that it may not."""
    operation["security"] = [{"HTTPBearer": [scope]}, {}]
    operation["responses"]["401"] = _response(HTTPStatus.UNAUTHORIZED)
    limited = _response(HTTPStatus.TOO_MANY_REQUESTS)
    operation["responses"]["429"] = limited | {"headers": response_headers("Retry-After")}
