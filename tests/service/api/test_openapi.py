"""The OpenAPI document: complete, with examples that work; and what it promises is what comes."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from automap.planner.spec import JobSpec
from automap.service.api import examples
from automap.service.app import create_app
from automap.service.schemas.access import NewApiKey
from automap.service.schemas.catalogue import NewCluster
from automap.service.schemas.jobs import JobRequest
from automap.service.schemas.studies import (
    CompareRequest,
    EstimateRequest,
    FrontRequest,
    WhatIfRequest,
)
from automap.service.storage import api_keys
from tests.service.support.databases import Databases, migrated, settings_for
from tests.service.support.described import described
from tests.service.support.servers import Server, serving

KEY = "a-key-of-the-environment"


def no_error_of_ours(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> bool | None:
    """As the check of schemathesis, but where a busy machine is not ready, it may say so."""
    if response.status_code == 503 and "retry-after" in response.headers:
        return None
    return not_a_server_error(context, response, case)


PATIENCE_SECONDS = 60.0
"""A write waits for others up to ten seconds, and so long a client waits unless it is told."""
EXAMPLES = 8
"""Of each operation; `make fuzz` sends thousands of requests."""
PROMISES = [
    no_error_of_ours,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

OPERATIONS = {
    ("get", "/healthz"),
    ("get", "/metrics"),
    ("get", "/readyz"),
    ("post", "/v1/plans"),
    ("get", "/v1/plans"),
    ("get", "/v1/plans/{plan_id}"),
    ("get", "/v1/plans/history"),
    ("get", "/v1/plans/{plan_id}/history"),
    ("patch", "/v1/plans/{plan_id}"),
    ("get", "/v1/plans/{plan_id}/diff"),
    ("get", "/v1/plans/{plan_id}/costs"),
    ("get", "/v1/costs"),
    ("post", "/v1/budgets"),
    ("get", "/v1/budgets"),
    ("delete", "/v1/budgets/{budget_id}"),
    ("post", "/v1/jobs/{job_id}/retry"),
    ("patch", "/v1/jobs/{job_id}"),
    ("delete", "/v1/plans/{plan_id}"),
    ("post", "/v1/plans/{plan_id}/cancel"),
    ("post", "/v1/plans/{plan_id}/compare"),
    ("post", "/v1/plans/{plan_id}/simulate"),
    ("get", "/v1/plans/{plan_id}/export"),
    ("post", "/v1/plans/pareto"),
    ("post", "/v1/plans/what-if"),
    ("get", "/v1/plans/{plan_id}/explain"),
    ("post", "/v1/plans/{plan_id}/explain"),
    ("post", "/v1/plans/{plan_id}/replan"),
    ("post", "/v1/jobs"),
    ("get", "/v1/jobs"),
    ("get", "/v1/jobs/{job_id}"),
    ("get", "/v1/jobs/{job_id}/events"),
    ("get", "/v1/jobs/{job_id}/logs"),
    ("post", "/v1/jobs/{job_id}/cancel"),
    ("post", "/v1/estimates"),
    ("get", "/v1/strategies"),
    ("get", "/v1/models"),
    ("get", "/v1/models/{name}"),
    ("get", "/v1/gpus"),
    ("get", "/v1/clusters"),
    ("post", "/v1/clusters"),
    ("get", "/v1/clusters/{name}"),
    ("delete", "/v1/clusters/{name}"),
    ("post", "/v1/profiles"),
    ("get", "/v1/profiles"),
    ("get", "/v1/profiles/{version}"),
    ("delete", "/v1/profiles/{version}"),
    ("get", "/v1/profiles/{version}/diff/{other}"),
    ("put", "/v1/profiles/{version}/default"),
    ("delete", "/v1/profiles/{version}/default"),
    ("post", "/v1/keys"),
    ("get", "/v1/keys"),
    ("delete", "/v1/keys/{key_id}"),
    ("get", "/v1/audit"),
    ("get", "/v1/schemas/job-spec"),
    ("get", "/v1/schemas/placement"),
}


# What generated clients call them: another name breaks whoever has one.
OPERATION_IDS = {
    *("create_key", "list_keys", "revoke_key", "list_audit"),
    *("check_health", "check_readiness", "read_metrics"),
    *("create_plan", "list_plans", "list_plan_history", "get_plan", "get_plan_history"),
    *(
        "cancel_plan",
        "delete_plan",
        "create_front",
        "create_variants",
        "compare_plan",
        "explain_plan",
    ),
    *(
        "describe_plan",
        "diff_plans",
        "get_plan_costs",
        "list_costs",
        "create_budget",
        "list_budgets",
        "delete_budget",
        "retry_job",
        "describe_job",
        "explain_plan_in_part",
        "export_plan",
        "replan_plan",
        "simulate_plan",
    ),
    *("create_job", "list_jobs", "get_job", "follow_job", "get_job_logs", "cancel_job"),
    *("create_estimate", "list_strategies", "list_models", "get_model", "list_gpus"),
    *("create_cluster", "list_clusters", "get_cluster", "delete_cluster"),
    *("create_profile", "list_profiles", "get_profile", "diff_profiles", "delete_profile"),
    *("set_default_profile", "unset_default_profile"),
    *("get_job_spec_schema", "get_placement_schema"),
}
VERBS = {
    *(
        "cancel",
        "check",
        "compare",
        "create",
        "delete",
        "describe",
        "diff",
        "explain",
        "export",
        "follow",
    ),
    *("get", "list", "read", "replan", "retry", "revoke", "set", "simulate", "unset"),
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    url = f"sqlite:///{tmp_path_factory.mktemp('openapi')}/automap.db"
    return create_app(settings_for(url)).openapi()


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_operations_are_these(document: dict[str, Any]) -> None:
    assert set(operations(document)) == OPERATIONS


def test_operation_ids_are_verbs_and_do_not_change(document: dict[str, Any]) -> None:
    found = [operation["operationId"] for operation in operations(document).values()]
    assert len(found) == len(set(found))
    assert set(found) == OPERATION_IDS
    for name in found:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name)
        assert name.split("_")[0] in VERBS, name


def test_schemas_have_names_that_generated_clients_can_use(document: dict[str, Any]) -> None:
    """Generators call a class by the title; of two with the same they drop one, and its users."""
    for name, schema in document["components"]["schemas"].items():
        assert re.fullmatch(r"([A-Z][a-z0-9]+)+", name), name
        assert schema.get("title", name) == name


def test_answers_that_are_text_are_strings(document: dict[str, Any]) -> None:
    """A generated client reads the text of an event stream as an object, if it is said to be."""
    found = {
        (content_type, answer["schema"].get("type"))
        for operation in operations(document).values()
        for response in operation["responses"].values()
        for content_type, answer in response.get("content", {}).items()
        if content_type.startswith("text/")
    }
    assert {kind for _, kind in found} == {"string"}
    assert "text/event-stream" in {content_type for content_type, _ in found}


def test_every_tag_is_described(document: dict[str, Any]) -> None:
    used = {tag for operation in operations(document).values() for tag in operation["tags"]}
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert used == described


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    for (method, path), operation in operations(document).items():
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        assert operation["tags"], (method, path)


def test_every_error_is_a_problem(document: dict[str, Any]) -> None:
    for (_, path), operation in operations(document).items():
        errors = {status for status in operation["responses"] if status >= "400"}
        assert "500" in errors
        if "requestBody" in operation:
            assert {"400", "413", "415", "422"} <= errors, path
        if "{" in path:
            assert "404" in errors, path
        for status in errors:
            content = operation["responses"][status]["content"]
            assert list(content) == ["application/problem+json"]
    text = str(document)
    assert "HTTPValidationError" not in text


def test_every_body_has_its_schema_and_examples(document: dict[str, Any]) -> None:
    for (method, path), operation in operations(document).items():
        if "requestBody" not in operation:
            assert method != "post" or path.endswith(("/cancel", "/retry")), path
            continue
        content = operation["requestBody"]["content"]
        patch = {"application/merge-patch+json"} if method == "patch" else set()
        assert set(content) == {"application/json", "application/yaml"} | patch
        for media in content.values():
            for schema in media["schema"].get("oneOf", [media["schema"]]):
                name = schema["$ref"].rpartition("/")[2]
                assert name in document["components"]["schemas"], path
            assert all(example["summary"] for example in media["examples"].values())


def test_references_lead_somewhere(document: dict[str, Any]) -> None:
    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for value in part.values():
                yield from references(value)
        elif isinstance(part, list):
            for value in part:
                yield from references(value)

    for reference in references(document):
        place: Any = document
        for key in reference.removeprefix("#/").split("/"):
            place = place[key]


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        (JobSpec, examples.SPEC_EXAMPLES),
        (JobRequest, examples.JOB_EXAMPLES),
        (EstimateRequest, examples.ESTIMATE_EXAMPLES),
        (CompareRequest, examples.COMPARE_EXAMPLES),
        (FrontRequest, examples.FRONT_EXAMPLES),
        (WhatIfRequest, examples.WHAT_IF_EXAMPLES),
        (NewCluster, examples.CLUSTER_EXAMPLES),
        (NewApiKey, examples.KEY_EXAMPLES),
    ],
)
def test_examples_are_valid(model: Any, shown: dict[str, Any]) -> None:
    for example in shown.values():
        model.model_validate(example["value"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path_factory.mktemp('contract')}/automap.db"
    # With a key, or the first one that a random request makes would end the test for the others.
    with serving(url, max_time_limit_seconds=5, api_keys=KEY) as server:
        yield server


def schema_of(server: Server) -> Any:
    """What it serves; read here, as schemathesis gives a busy machine ten seconds for it."""
    return schemathesis.openapi.from_dict(described(server))


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    return schema_of(server)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), sorted(OPERATIONS))
def test_random_requests_get_what_the_document_promises(
    server: Server, schema: Any, method: str, path: str
) -> None:
    operation = schema[path][method]

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def probe(case: schemathesis.Case) -> None:
        headers = {"Authorization": f"Bearer {KEY}"}
        case.call_and_validate(
            base_url=server.address, checks=PROMISES, headers=headers, timeout=PATIENCE_SECONDS
        )

    probe()


@pytest.mark.slow_on("postgresql")
def test_random_requests_with_few_scopes_and_over_the_limits(databases: Databases) -> None:
    """What a key may not do, and what it asks for too often, is refused as the document says."""
    url = databases.create("limited")
    database = migrated(url)
    with database.transaction() as session:
        keys = [
            api_keys.create(session, NewApiKey(owner="ada", scopes=[scope])).key
            for scope in ("read", "plan", "run", "admin")
        ]
    database.dispose()
    answered: Counter[int] = Counter()
    with serving(url, max_requests_per_minute=100, max_plans_at_once=1) as server:
        schema = schema_of(server)
        # What plans is left out: it is slow, and its scope and limits are those of the others.
        routes = [("get", "/v1/plans"), ("get", "/v1/models/{name}"), ("post", "/v1/jobs")]
        routes += [("delete", "/v1/clusters/{name}"), ("get", "/v1/audit"), ("get", "/v1/keys")]
        routes += [("post", "/v1/keys"), ("delete", "/v1/keys/{key_id}")]
        for method, path in routes:
            operation = schema[path][method]

            @hypothesis.given(case=operation.as_strategy(), key=strategies.sampled_from(keys))
            @hypothesis.settings(
                max_examples=40,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def probe(case: schemathesis.Case, key: str) -> None:
                headers = {"Authorization": f"Bearer {key}"}
                response = case.call_and_validate(
                    base_url=server.address,
                    checks=PROMISES,
                    headers=headers,
                    timeout=PATIENCE_SECONDS,
                )
                answered[response.status_code] += 1

            probe()
    assert {200, 403, 429} <= answered.keys()
    assert all(status < 500 or status == 503 for status in answered)
