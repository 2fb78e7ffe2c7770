from fastapi.testclient import TestClient

from automap.service.api.examples import CLUSTER_EXAMPLES
from automap.service.storage.database import Database
from tests.service.support.requests import YAML, problem, stored_rows
from tests.service.support.samples import Json, small_spec

POOL: Json = {"name": "a100", "gpu": "a100-80gb", "num_nodes": 2, "price_per_gpu_hour": 1.5}


def post(client: TestClient, name: str = "team", **pool: object) -> None:
    response = client.post("/v1/clusters", json={"name": name, "pools": [{**POOL, **pool}]})
    assert response.status_code == 201, response.text


def test_a_stored_cluster_comes_back(client: TestClient) -> None:
    created = client.post("/v1/clusters", json={"name": "team", "pools": [POOL]})
    assert created.status_code == 201
    assert created.headers["location"] == "/v1/clusters/team"
    read = client.get("/v1/clusters/team")
    assert read.status_code == 200
    assert read.json() == created.json()
    (pool,) = read.json()["pools"]
    assert {name: pool[name] for name in POOL} == POOL


def test_the_example_can_be_stored(client: TestClient) -> None:
    for example in CLUSTER_EXAMPLES.values():
        assert client.post("/v1/clusters", json=example["value"]).status_code == 201


def test_yaml_is_read_too(client: TestClient) -> None:
    text = "name: team\npools:\n  - {name: a100, gpu: a100-80gb, num_nodes: 2}\n"
    assert client.post("/v1/clusters", content=text, headers=YAML).status_code == 201
    assert client.get("/v1/clusters/team").json()["pools"][0]["num_nodes"] == 2


def test_a_taken_name_is_a_conflict(client: TestClient) -> None:
    post(client)
    again = client.post("/v1/clusters", json={"name": "team", "pools": [{**POOL, "num_nodes": 9}]})
    problem(again, 409, "conflict")
    assert client.get("/v1/clusters/team").json()["pools"][0]["num_nodes"] == 2


def test_a_wrong_cluster_is_not_stored(client: TestClient, database: Database) -> None:
    for cluster, field in [
        ({"name": "team", "pools": []}, "pools"),
        ({"name": "", "pools": [POOL]}, "name"),
        ({"name": "no spaces", "pools": [POOL]}, "name"),
        ({"name": "x" * 65, "pools": [POOL]}, "name"),
        ({"pools": [POOL]}, "name"),
        ({"name": "team", "pools": [{**POOL, "gpu": "a1000"}]}, "pools.0.gpu"),
        ({"name": "team", "pools": [POOL, {**POOL, "name": "b", "gpu": "??"}]}, "pools.1.gpu"),
        ({"name": "team", "pools": [{**POOL, "num_nodes": 0}]}, "pools.0.num_nodes"),
        ({"name": "team", "pools": [{**POOL, "profile": "/tmp"}]}, "pools.0.profile"),
    ]:
        body = problem(client.post("/v1/clusters", json=cluster), 422, "invalid-spec")
        assert body["errors"][0]["field"] == field
    assert stored_rows(database) == 0


def test_a_deleted_cluster_is_gone(client: TestClient) -> None:
    post(client)
    assert client.delete("/v1/clusters/team").status_code == 204
    problem(client.get("/v1/clusters/team"), 404, "not-found")
    problem(client.delete("/v1/clusters/team"), 404, "not-found")
    post(client)  # the name is free again


def test_pages_show_each_cluster_once(client: TestClient) -> None:
    for number in range(7):
        post(client, f"cluster-{number}")
    names, url = [], "/v1/clusters?limit=3"
    while True:
        page = client.get(url).json()
        names += [cluster["name"] for cluster in page["items"]]
        if page["next_cursor"] is None:
            break
        assert len(page["items"]) == 3
        url = f"/v1/clusters?limit=3&cursor={page['next_cursor']}"
    assert names == [f"cluster-{number}" for number in reversed(range(7))]


def test_an_unknown_cluster_in_a_spec_names_the_known(client: TestClient) -> None:
    post(client, "berlin")
    response = client.post("/v1/plans", json=small_spec(cluster="boston"))
    (error,) = problem(response, 422, "invalid-spec")["errors"]
    assert (error["field"], error["value"]) == ("cluster", "boston")
    assert "berlin" in error["remedy"]
