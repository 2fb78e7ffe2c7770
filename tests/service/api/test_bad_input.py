"""What strangers send to POST /v1/plans: each a problem with field and remedy, nothing stored."""

import json
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from automap.service.storage.database import Database
from tests.service.support.requests import POST_HEADERS, YAML, problem, stored_rows
from tests.service.support.samples import Json, changed, small_spec

# What is refused before the database is asked; the other one is for make test-all.
pytestmark = pytest.mark.slow_on("postgresql")

SPEC = small_spec()
INVALID_FIELDS: list[tuple[str, Json, str]] = [
    (f"{path}={value!r}"[:60], changed(SPEC, path, value), field)
    for path, value, field in [
        ("models.actor.architecture", "llama-9-70b", "models.actor.architecture"),
        ("models.actor.architecture", "/etc/passwd", "models.actor.architecture"),
        ("models.actor.architecture", "../config.json", "models.actor.architecture"),
        ("models.actor.architecture", "x" * 100_000, "models.actor.architecture"),
        ("models.actor.architecture", {"num_layers": 2}, "models.actor.architecture.hidden_size"),
        ("models.actor", {}, "models.actor.architecture"),
        ("models.actor", {"function": True, "lora": {"rank": 4}}, "models.actor.lora"),
        ("models.critic.lora", {"rank": 0}, "models.critic.lora.rank"),
        ("models.reward.lora", {"rank": 4}, "models.reward.lora"),
        ("models.banana", {"architecture": "llama-2-7b"}, "models.banana"),
        ("models", {}, "models"),
        ("models", [], "models"),
        ("models", {"actor": {"architecture": "llama-2-7b"}}, "models.critic"),
        ("cluster.pools.0.gpu", "a100-ultra", "cluster.pools.0.gpu"),
        ("cluster.pools.0.num_nodes", 0, "cluster.pools.0.num_nodes"),
        ("cluster.pools.0.num_nodes", -1, "cluster.pools.0.num_nodes"),
        ("cluster.pools.0.num_nodes", 2.5, "cluster.pools.0.num_nodes"),
        ("cluster.pools.0.num_nodes", 10**18, "cluster.pools.0.num_nodes"),
        ("cluster.pools.0.price_per_gpu_hour", -1, "cluster.pools.0.price_per_gpu_hour"),
        ("cluster.pools", [], "cluster.pools"),
        ("cluster.pools", SPEC["cluster"]["pools"] * 2, "cluster.pools.1.name"),
        ("cluster", "no-such-cluster", "cluster"),
        ("cluster", "'; DROP TABLE plans; --", "cluster"),
        ("workload.prompts_per_iteration", 0, "workload.prompts_per_iteration"),
        ("workload.prompts_per_iteration", "many", "workload.prompts_per_iteration"),
        ("workload.prompts_per_iteration", None, "workload.prompts_per_iteration"),
        ("workload.updates_per_epoch", 1000, "workload.updates_per_epoch"),
        ("workload.response_length", {"mean": 100, "max": 10}, "workload.response_length.mean"),
        ("workload.response_length", {"mean": -5, "max": 10}, "workload.response_length.mean"),
        ("workload.response_length", {"mean": 5}, "workload.response_length.max"),
        ("workload.precision", "bf17", "workload.precision"),
        ("workload.promts_per_iteration", 5, "workload.promts_per_iteration"),
        ("search", {"staleness": -1}, "search.staleness"),
        ("search", {"time_limit_seconds": 3600}, "search.time_limit_seconds"),
        ("search", {"time_limit_seconds": 0}, "search.time_limit_seconds"),
        ("search", {"target_iteration_seconds": 10}, "search.target_iteration_seconds"),
        ("search", {"num_workers": 1000}, "search.num_workers"),
        ("constraints", {"pools": {"actor": "nowhere"}}, "constraints.pools.actor"),
        ("constraints", {"keep_free_gpus": {"a100": 8}}, "constraints.keep_free_gpus.a100"),
        ("algorithm", "pppo", "algorithm"),
        ("algorithm", None, "algorithm"),
        ("dataflow", {"calls": []}, "dataflow.calls"),
        ("name", "", "name"),
        ("name", "x" * 1000, "name"),
        ("name", ["a"], "name"),
        ("unexpected", 1, "unexpected"),
    ]
]


@pytest.mark.parametrize(
    ("spec", "field"),
    [case[1:] for case in INVALID_FIELDS],
    ids=[case[0] for case in INVALID_FIELDS],
)
def test_a_bad_spec_is_answered_with_its_field(
    client: TestClient, database: Database, spec: Json, field: str
) -> None:
    for headers in ({}, {"Prefer": "respond-async"}, {"Idempotency-Key": "mine"}):
        body = problem(client.post("/v1/plans", json=spec, headers=headers), 422, "invalid-spec")
        fields = [error["field"] for error in body["errors"]]
        assert field in fields
        assert all(error["message"] for error in body["errors"])
        assert all(error["remedy"] for error in body["errors"]), body["errors"]
        assert len(json.dumps(body)) < 20_000  # what was sent is shortened
    assert stored_rows(database) == 0


def test_the_value_and_the_remedy_are_shown(client: TestClient) -> None:
    spec = changed(SPEC, "workload.promts_per_iteration", 5)
    del spec["workload"]["prompts_per_iteration"]
    spec["cluster"]["pools"][0]["num_nodes"] = -7
    body = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")
    errors = {error["field"]: error for error in body["errors"]}
    assert errors["cluster.pools.0.num_nodes"]["value"] == -7
    assert "greater than or equal to 1" in errors["cluster.pools.0.num_nodes"]["message"]
    assert "prompts_per_iteration" in errors["workload.promts_per_iteration"]["remedy"]
    assert "workload.prompts_per_iteration" not in errors


def test_a_misspelt_field_is_one_mistake(client: TestClient) -> None:
    spec = dict(SPEC)
    spec["worklod"] = spec.pop("workload")
    errors = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")["errors"]
    assert [error["field"] for error in errors] == ["worklod"]
    assert errors[0]["remedy"] == "did you mean 'workload'? Otherwise remove it"
    spec["nonsense"] = spec.pop("worklod")
    errors = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")["errors"]
    found = {error["field"]: error["remedy"] for error in errors}
    assert set(found) == {"nonsense", "workload"}
    assert found["workload"] == "add this field"


def test_common_errors_have_a_remedy(client: TestClient) -> None:
    for path, value, remedy in [
        ("cluster.pools.0.num_nodes", 0, "use a number of at least 1"),
        ("search", {"num_workers": 1000}, "use a number of at most"),
        ("algorithm", "grop", "did you mean 'grpo'? Use "),
    ]:
        spec = changed(SPEC, path, value)
        body = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")
        assert any(remedy in error["remedy"] for error in body["errors"]), body
    for document in ([], "text"):
        body = problem(client.post("/v1/plans", json=document), 422, "invalid-spec")
        assert body["errors"][0]["field"] == "document"
        assert "must be a mapping of fields" in body["errors"][0]["message"]


POOL = SPEC["cluster"]["pools"][0]


@pytest.mark.parametrize(
    ("path", "value", "field", "shown", "remedy"),
    [
        (
            "workload.prompt_length",
            {"mean": 3000, "max": 1024},
            "workload.prompt_length.mean",
            3000,
            "use at most 1024, or raise max",
        ),
        (
            "search",
            {"target_iteration_seconds": 10},
            "search.target_iteration_seconds",
            10,
            "leave it out, or set objective: fewest_gpus",
        ),
        (
            "cluster.pools",
            [POOL, POOL],
            "cluster.pools.1.name",
            POOL["name"],
            "give every pool a name of its own",
        ),
        (
            "cluster.pools.0.inter_node_bytes_per_second",
            "200Gb",
            "cluster.pools.0.inter_node_bytes_per_second",
            "200Gb",
            "the field is bytes per second and GPU: write 25000000000 if each GPU has 200Gb, or "
            "3125000000 if a node of 8 has, 200Gb ÷ 8",
        ),
        (
            "cluster.pools.0.host_link_bytes_per_second",
            "32 GB/s",
            "cluster.pools.0.host_link_bytes_per_second",
            "32 GB/s",
            "write 32000000000, the same in the field's own unit",
        ),
        (
            "cluster.pools.0.gpu",
            {"name": "mine", "memory_bytes": 24e9},
            "cluster.pools.0.gpu",
            '{"name": "mine", "memory_bytes": 24000000000.0}',
            'name one that automap gpus lists; docs/guides/catalogue.md, "Adding a GPU", says '
            "where the figures of another are given",
        ),
        (
            "cluster.pools.0.host_memory_bytes",
            "2 TiB",
            "cluster.pools.0.host_memory_bytes",
            "2 TiB",
            "write 2199023255552, the same in the field's own unit",
        ),
        (
            "workload.startup_seconds",
            "5 min",
            "workload.startup_seconds",
            "5 min",
            "write 300, the same in the field's own unit",
        ),
        (
            "workload.epochs",
            "two",
            "workload.epochs",
            "two",
            "write a whole number, without quotes or a unit",
        ),
        (
            "cluster.pools.0.gpus_per_node",
            [8, 4],
            "cluster.pools.0.gpus_per_node",
            "[8, 4]",
            "give nodes of another size as another pool of the same gpu",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) and "." in part else "",
)
def test_an_error_names_the_field_the_value_and_what_would_be_valid(
    client: TestClient, path: str, value: Any, field: str, shown: Any, remedy: str
) -> None:
    body = problem(client.post("/v1/plans", json=changed(SPEC, path, value)), 422, "invalid-spec")
    (error,) = body["errors"]
    assert (error["field"], error["value"], error["remedy"]) == (field, shown, remedy)


def test_a_copy_whose_sizes_do_not_multiply_is_named(client: TestClient) -> None:
    copy = {"id": "actor", "role": "actor", "kind": "home", "pool": "a100", "first_gpu": 0}
    copy |= {"num_gpus": 3, "layout": {"tensor_parallel_size": 2}}
    asked = {"spec": SPEC, "placement": {"copies": [copy], "calls": []}}
    (error,) = problem(client.post("/v1/estimates", json=asked), 422, "invalid-spec")["errors"]
    assert (error["field"], error["value"]) == ("placement.copies.0.num_gpus", 3)
    assert error["remedy"] == "set it to 2, or change the layout"


def test_a_text_for_a_number_is_told_in_every_kind_of_body(client: TestClient) -> None:
    asked = {"spec": SPEC, "tolerance": "2%"}
    (error,) = problem(client.post("/v1/plans/pareto", json=asked), 422, "invalid-spec")["errors"]
    assert error["remedy"] == "write a number, without quotes or a unit"


@pytest.mark.parametrize(
    ("path", "asked", "field"),
    [
        ("/v1/plans/pareto", {"spec": SPEC, "tolerance": "0.1"}, "tolerance"),
        ("/v1/budgets", {"of": "owner:ada", "amount": "5"}, "amount"),
        (f"/v1/plans/{UUID(int=0)}/simulate", {"trace": 1}, "trace"),
        (f"/v1/plans/{UUID(int=0)}/explain", {"fewer_gpus": "8"}, "fewer_gpus"),
        (f"/v1/plans/{UUID(int=0)}/replan", {"lose_nodes": {"a100": "1"}}, "lose_nodes.a100"),
    ],
)
def test_what_is_of_another_kind_is_not_taken_for_it(
    client: TestClient, path: str, asked: Json, field: str
) -> None:
    (error,) = problem(client.post(path, json=asked), 422, "invalid-spec")["errors"]
    assert error["field"] == field


@pytest.mark.parametrize(
    ("patch", "fields"),
    [
        ({"name": [[]], "notes": [[]]}, ["name", "notes"]),
        ({"name": {}, "labels": {"team": 5}}, ["labels.team", "name"]),
        ({"name": ["x"], "labels": "team"}, ["labels", "name"]),
        ({"name": ["x"], "colour": "red"}, ["colour", "name"]),
    ],
)
def test_each_wrong_field_is_named_whatever_else_is_wrong(
    client: TestClient, patch: Json, fields: list[str]
) -> None:
    body = problem(client.patch(f"/v1/plans/{UUID(int=0)}", json=patch), 422, "invalid-spec")
    assert sorted(each["field"] for each in body["errors"]) == fields


def test_unknown_names_come_with_known_ones(client: TestClient) -> None:
    body = problem(
        client.post("/v1/plans", json=changed(SPEC, "models.actor.architecture", "llama-2-71b")),
        422,
        "invalid-spec",
    )
    (error,) = body["errors"]
    assert error["value"] == "llama-2-71b"
    assert "llama-2-7b" in error["remedy"]


def test_staleness_on_an_algorithm_that_forbids_it(client: TestClient) -> None:
    spec = small_spec(algorithm="remax", search={"staleness": 1})
    del spec["models"]["critic"]
    body = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")
    assert body["errors"][0]["field"] == "search.staleness"
    assert "ratio" in body["errors"][0]["remedy"]


UNREADABLE: list[tuple[str, dict[str, str], bytes]] = [
    ("empty", POST_HEADERS, b""),
    ("not json", POST_HEADERS, b"name: x"),
    ("cut off", POST_HEADERS, json.dumps(SPEC).encode()[:-5]),
    ("not utf-8", POST_HEADERS, b'{"name": "\xff\xfe"}'),
    ("utf-16", POST_HEADERS, json.dumps(SPEC).encode("utf-16")),
    ("nan", POST_HEADERS, b'{"name": NaN}'),
    ("infinity", POST_HEADERS, b'{"name": [1e400]}'),
    ("huge integer", POST_HEADERS, b'{"name": ' + b"9" * 50_000 + b"}"),
    ("twice", POST_HEADERS, b'{"name": "a", "name": "b"}'),
    ("nul", POST_HEADERS, rb'{"name": "a\u0000b"}'),
    ("half a surrogate", POST_HEADERS, rb'{"name": "a\ud800b"}'),
    ("deep lists", POST_HEADERS, b"[" * 500_000),
    ("deep objects", POST_HEADERS, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    ("yaml deep", YAML, b"[" * 500_000),
    ("yaml alias bomb", YAML, b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"),
    ("yaml tag", YAML, b"name: !!python/object/apply:os.system ['true']"),
    ("yaml twice", YAML, b"name: a\nname: b"),
    ("yaml two documents", YAML, b"name: a\n---\nname: b"),
    ("yaml broken", YAML, b"name: [a\nb: }"),
]


@pytest.mark.parametrize(
    ("headers", "content"), [case[1:] for case in UNREADABLE], ids=[case[0] for case in UNREADABLE]
)
def test_an_unreadable_body_is_400(
    client: TestClient, database: Database, headers: dict[str, str], content: bytes
) -> None:
    started = time.perf_counter()
    problem(client.post("/v1/plans", content=content, headers=headers), 400, "invalid-document")
    assert time.perf_counter() - started < 3
    assert stored_rows(database) == 0


@pytest.mark.parametrize("content", [b"null", b"1", b'"text"', b"[]", b"{}", b"true"])
def test_json_that_is_no_spec_is_422(client: TestClient, content: bytes) -> None:
    response = client.post("/v1/plans", content=content, headers=POST_HEADERS)
    problem(response, 422, "invalid-spec")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
def test_other_media_are_415(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/v1/plans", content=json.dumps(SPEC).encode(), headers=headers)
    body = problem(response, 415, "unsupported-media-type")
    assert "application/yaml" in body["detail"]
    assert response.headers["accept-post"]


def ten_megabytes() -> Iterator[bytes]:
    for _ in range(160):
        yield b" " * 65_536


def test_a_large_body_is_413(client: TestClient, database: Database) -> None:
    declared = client.post("/v1/plans", content=b" " * 10_485_760, headers=POST_HEADERS)
    problem(declared, 413, "body-too-large")
    chunked = client.post("/v1/plans", content=ten_megabytes(), headers=POST_HEADERS)
    problem(chunked, 413, "body-too-large")
    assert stored_rows(database) == 0


def test_many_errors_are_cut(client: TestClient) -> None:
    spec = {**SPEC, **{f"field_{number}": 1 for number in range(9_000)}}
    started = time.perf_counter()
    body = problem(client.post("/v1/plans", json=spec), 422, "invalid-spec")
    assert len(body["errors"]) == 50
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("key", ["", "x" * 256, "two words", "tab\there"])
def test_an_idempotency_key_is_printable_and_short(client: TestClient, key: str) -> None:
    response = client.post("/v1/plans", json=SPEC, headers={"Idempotency-Key": key})
    body = problem(response, 422, "invalid-spec")
    assert body["errors"][0]["field"] == "header.idempotency-key"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/v1/nothing", 404, "not-found"),
        ("GET", "/nothing", 404, "not-found"),
        ("PUT", "/v1/plans", 405, "method-not-allowed"),
        ("GET", "/v1/plans/not-an-id", 422, "invalid-spec"),
        ("GET", "/v1/plans/00000000-0000-0000-0000-000000000000", 404, "not-found"),
        ("DELETE", "/v1/plans/00000000-0000-0000-0000-000000000000", 404, "not-found"),
        ("GET", "/v1/clusters/none", 404, "not-found"),
        ("DELETE", "/v1/clusters/none", 404, "not-found"),
        ("GET", "/v1/clusters/%00", 422, "invalid-spec"),
        ("GET", "/v1/models/llama-9", 404, "not-found"),
        ("GET", "/v1/models/%00%ff", 404, "not-found"),
        ("GET", "/v1/plans?limit=0", 422, "invalid-spec"),
        ("GET", "/v1/plans?limit=100000", 422, "invalid-spec"),
        ("GET", "/v1/plans?status=lost", 422, "invalid-spec"),
        ("GET", "/v1/plans?algorithm=none", 422, "invalid-spec"),
        ("GET", "/v1/plans?model=%00", 422, "invalid-spec"),
        ("GET", "/v1/plans?cluster=%27", 422, "invalid-spec"),
        ("GET", "/v1/plans?created_after=1700000000", 422, "invalid-spec"),
        ("GET", "/v1/plans?created_after=yesterday", 422, "invalid-spec"),
        ("GET", "/v1/plans?created_after=2026-01-01T00:00:00", 422, "invalid-spec"),
        ("GET", "/v1/plans?created_after=9999-12-31T23:59:59-12:00", 422, "invalid-spec"),
        ("GET", "/v1/plans?cursor=nonsense", 422, "invalid-spec"),
        ("GET", "/v1/plans?cursor=%C3%A9", 422, "invalid-spec"),
        ("GET", "/v1/plans?unknown=1", 422, "invalid-spec"),
        ("GET", "/v1/clusters?cursor=MjAyNg", 422, "invalid-spec"),
    ],
)
def test_other_requests_that_go_wrong(
    client: TestClient, method: str, path: str, status: int, kind: str
) -> None:
    problem(client.request(method, path), status, kind)


@pytest.mark.parametrize("field", ["q", "owner", "model"])
def test_a_text_with_control_characters_is_told_so_in_words(client: TestClient, field: str) -> None:
    found = problem(client.get("/v1/plans", params={field: "a\0b"}), 422, "invalid-spec")
    assert "control characters" in found["errors"][0]["remedy"]
