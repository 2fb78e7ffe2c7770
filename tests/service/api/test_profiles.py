"""Measured profiles: stored, compared, made the default, and plans priced with them."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.profiles.corrections import Evidence, corrections_of, read_corrections
from automap.planner.profiles.folder import COLUMNS
from automap.planner.runs.priced_by import bases_of
from automap.planner.spec import JobSpec
from automap.service.schemas.profiles import NewProfile
from automap.service.storage.database import Database
from automap.service.storage.profile_files import materialise, materialise_for_remedies
from automap.service.storage.profiles import add
from automap.service.storage.tables import ProfileRow
from tests.service.support.profiles import EXAMPLE, profile, stored
from tests.service.support.requests import problem
from tests.service.support.samples import Json, small_spec
from tests.service.support.servers import ASYNC

pytestmark = pytest.mark.slow_on("postgresql")

POOL: Json = {"name": "cores", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2}


def tiny_spec(**pool: Any) -> Json:
    spec = small_spec(name="tiny", cluster={"pools": [{**POOL, **pool}]})
    spec["models"] = {role: {"architecture": "tiny-llama"} for role in spec["models"]}
    spec["workload"] = {
        **spec["workload"],
        "prompts_per_iteration": 8,
        "updates_per_epoch": 1,
        "prompt_length": {"mean": 16, "max": 16},
        "response_length": {"mean": 16, "max": 16},
        "precision": "fp32",
    }
    return spec


def planned(client: TestClient, spec: Json) -> Json:
    response = client.post("/v1/plans", json=spec)
    assert response.status_code == 201, response.text
    record: Json = response.json()
    return record


def test_a_stored_profile_comes_back(client: TestClient) -> None:
    version = stored(client, profile())
    read = client.get(f"/v1/profiles/{version}").json()
    assert read["device_type"] == "cpu"
    assert read["shapes"] == {"gemm": 8, "memory_bound": 8}
    assert [each["seconds"] for each in read["measurements"]] == [
        each["seconds"] for each in profile()["measurements"]
    ]
    (listed,) = client.get("/v1/profiles", params={"device_type": "cpu"}).json()["items"]
    assert listed["version"] == version
    assert "measurements" not in listed
    assert client.get("/v1/profiles", params={"device_type": "h100"}).json()["items"] == []


def test_the_same_measurements_are_one_version(client: TestClient, database: Database) -> None:
    version = stored(client, profile())
    again = profile()
    again["measurements"].reverse()
    response = client.post("/v1/profiles", json=again)
    assert (response.status_code, response.json()["version"]) == (200, version)
    assert stored(client, profile(factor=1.5)) != version
    assert stored(client, profile(torch="9.9")) != version
    with database.reading() as session:
        assert session.query(ProfileRow).count() == 3


def test_what_is_no_version_is_told_with_a_remedy(client: TestClient) -> None:
    for response in (
        client.get("/v1/profiles/abc/diff/0123456789ab"),
        client.put("/v1/profiles/abc/default"),
    ):
        (error,) = problem(response, 422, "invalid-spec")["errors"]
        assert "12 hexadecimal digits" in error["remedy"]


def test_one_profile_of_a_type_is_the_default(client: TestClient) -> None:
    first, second = stored(client, profile()), stored(client, profile(factor=2.0))

    def defaults() -> list[str]:
        items = client.get("/v1/profiles").json()["items"]
        return [each["version"] for each in items if each["is_default"]]

    assert defaults() == []
    assert client.put(f"/v1/profiles/{first}/default").json()["is_default"]
    assert defaults() == [first]
    response = client.post("/v1/profiles", json={**profile(factor=2.0), "make_default": True})
    assert response.json()["is_default"]
    assert defaults() == [second]
    assert not client.delete(f"/v1/profiles/{second}/default").json()["is_default"]
    assert defaults() == []


def test_two_defaults_at_once_leave_one(client: TestClient, database: Database) -> None:
    def store(factor: float) -> str:
        new = NewProfile.model_validate({**profile(factor=factor), "make_default": True})
        with database.transaction() as session:
            return add(session, new.storable())[0].version

    with ThreadPoolExecutor() as others:
        with database.transaction() as session:
            new = NewProfile.model_validate({**profile(), "make_default": True})
            add(session, new.storable())
            last = others.submit(store, 2.0)
            wait([last], timeout=0.3)
            assert not last.done()
        version = last.result(timeout=10)
    items = client.get("/v1/profiles").json()["items"]
    assert [each["version"] for each in items if each["is_default"]] == [version]
    assert len(items) == 2


def test_two_profiles_are_compared(client: TestClient) -> None:
    slower = profile(factor=2.0, torch="9.9")
    del slower["measurements"][0]
    slower["measurements"][-1]["seconds"] *= 5
    first, second = stored(client, profile()), stored(client, slower)
    found = client.get(f"/v1/profiles/{first}/diff/{second}").json()
    assert found["identity"] == [{"name": "torch", "first": None, "second": "9.9"}]
    gemm, memory = found["tables"]
    assert (gemm["both"], gemm["only_first"], gemm["only_second"]) == (7, 1, 0)
    assert gemm["median_ratio"] == memory["median_ratio"] == pytest.approx(2.0)
    assert found["furthest"][0]["ratio"] == pytest.approx(10.0)
    assert found["furthest"][0]["key"]["operator"] == "silu_multiply"
    same = client.get(f"/v1/profiles/{first}/diff/{first}").json()
    assert [each["median_ratio"] for each in same["tables"]] == [1.0, 1.0]


def test_a_profile_is_deleted(client: TestClient) -> None:
    version = stored(client, profile())
    assert client.delete(f"/v1/profiles/{version}").status_code == 204
    for response in (
        client.delete(f"/v1/profiles/{version}"),
        client.get(f"/v1/profiles/{version}"),
        client.put(f"/v1/profiles/{version}/default"),
        client.get(f"/v1/profiles/{version}/diff/{version}"),
    ):
        problem(response, 404, "not-found")


def broken(**changes: Any) -> Json:
    new = profile()
    new["measurements"][1] |= changes
    return new


@pytest.mark.parametrize(
    ("new", "field", "message"),
    [
        (broken(table="gem"), "measurements.1", "no table 'gem'"),
        (broken(key={"m": 1}), "measurements.1", "exactly precision, collector, m, n, k"),
        (broken(seconds=-1), "measurements.1.seconds", "greater than or equal to 0"),
        (broken(seconds=1e9), "measurements.1.seconds", "less than or equal to 1000000"),
        (broken(key=EXAMPLE["measurements"][0]["key"] | {"m": "8"}), "measurements.1", "key.m"),
        (
            {**profile(), "measurements": profile()["measurements"] * 2},
            "measurements",
            "same shape",
        ),
        (broken(seconds="1"), "measurements.1.seconds", "valid number"),
        (broken(busy=0), "measurements.1.busy", "valid boolean"),
        ({**profile(), "make_default": 0}, "make_default", "valid boolean"),
        ({**profile(), "fingerprint": {}}, "fingerprint", "identity.device_type"),
        (profile(device_type="h1000"), "fingerprint", "h1000"),
        ({**profile(), "measurements": []}, "measurements", "at least 1"),
        (profile(based_on="shipped"), "measurements", "the tables are the shipped ones"),
    ],
)
def test_a_wrong_profile_is_not_stored(
    client: TestClient, database: Database, new: Json, field: str, message: str
) -> None:
    body = problem(client.post("/v1/profiles", json=new), 422, "invalid-spec")
    (error,) = body["errors"]
    assert error["field"] == field
    assert message in error["message"]
    with database.reading() as session:
        assert session.query(ProfileRow).count() == 0


def test_profiles_may_be_larger_than_other_bodies(client: TestClient) -> None:
    settings = client.app.state.settings  # type: ignore[attr-defined]
    padding = " " * (settings.max_body_bytes + 1)
    headers = {"content-type": "application/json"}
    text = padding + client.build_request("POST", "/", json=profile()).content.decode()
    assert client.post("/v1/profiles", content=text, headers=headers).status_code == 201
    problem(client.post("/v1/plans", content=text, headers=headers), 413, "body-too-large")


@pytest.mark.slow
def test_a_pool_is_priced_with_the_version_it_names(
    live: TestClient, profiles_folder: Path
) -> None:
    slow, fast = stored(live, profile(factor=50.0)), stored(live, profile())
    seconds = {
        name: planned(live, tiny_spec(profile=name))["iteration_seconds"]
        for name in (slow, fast, "shipped")
    }
    assert seconds[slow] > 5 * seconds[fast]
    record = planned(live, tiny_spec(profile=slow))
    assert record["spec"]["cluster"]["pools"][0]["profile"] == slow
    assert record["plan"]["provenance"]["measured_profiles"]["cores"].endswith(f" in {slow}")
    assert planned(live, tiny_spec())["iteration_seconds"] == seconds["shipped"]
    live.put(f"/v1/profiles/{slow}/default")
    by_default = planned(live, tiny_spec())
    assert by_default["iteration_seconds"] == seconds[slow]
    assert by_default["spec"]["cluster"]["pools"][0]["profile"] == slow
    assert planned(live, tiny_spec(profile="shipped"))["iteration_seconds"] == seconds["shipped"]
    # Priced anew with what it was planned with, although the folder was lost.
    shutil.rmtree(profiles_folder / slow)
    request = {"strategies": ["colocate_all"]}
    compared = live.post(f"/v1/plans/{record['id']}/compare", json=request)
    assert compared.status_code == 200, compared.text
    assert (profiles_folder / slow / "gemm.parquet").exists()


def test_what_if_prices_another_gpu_with_its_default(live: TestClient) -> None:
    version = stored(live, {**profile(), "make_default": True})
    body = {"spec": tiny_spec(gpu="l40s", num_nodes=2), "gpus": ["cpu"]}
    response = live.post("/v1/plans/what-if", json=body)
    assert response.status_code == 201, response.text
    (variant,) = response.json()["variants"]
    assert variant["plan"]["spec"]["cluster"]["pools"][0]["profile"] == version
    measured = variant["plan"]["plan"]["provenance"]["measured_profiles"]
    assert measured["cores"].endswith(f" in {version}")
    response = live.post("/v1/plans/what-if", json=body, headers=ASYNC)
    (variant,) = response.json()["variants"]
    assert variant["plan"]["spec"]["cluster"]["pools"][0]["profile"] == version


def test_what_has_a_deleted_profile_is_refused_although_it_is_laid_out(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    spec = JobSpec.model_validate(tiny_spec(profile=stored(client, profile())))
    materialise(database, tmp_path, spec)
    (folder,) = tmp_path.iterdir()
    client.delete(f"/v1/profiles/{folder.name}")
    with pytest.raises(SpecError, match="was removed") as refused:
        materialise(database, tmp_path, spec)
    assert refused.value.field == "cluster.pools.0.profile"


def test_what_if_is_queued_with_the_default(client: TestClient) -> None:
    version = stored(client, {**profile(), "make_default": True})
    body = {"spec": tiny_spec(), "nodes": [1, 2]}
    response = client.post("/v1/plans/what-if", json=body, headers=ASYNC)
    assert response.status_code == 202, response.text
    for variant in response.json()["variants"]:
        assert variant["plan"]["spec"]["cluster"]["pools"][0]["profile"] == version
    body["spec"] |= {"constraints": {"keep_free_gpus": {"cores": 2}}}
    body["spec"]["cluster"]["pools"][0]["num_nodes"] = 2
    found = problem(client.post("/v1/plans/what-if", json=body, headers=ASYNC), 422, "invalid-spec")
    assert found["errors"][0]["field"] == "spec.constraints.keep_free_gpus.cores"


def test_what_runs_taught_goes_with_a_profile(live: TestClient, profiles_folder: Path) -> None:
    evidence = {
        "run": "one",
        "call": "actor.train",
        "kind": "train",
        "role_class": "language",
        "predicted": 1.0,
        "measured": 4.0,
        "iterations": 3,
    }
    found = corrections_of([Evidence.model_validate(evidence)])
    plain = stored(live, profile())
    taught = stored(live, profile() | {"corrections": found.model_dump(mode="json")})
    assert taught != plain
    assert live.get(f"/v1/profiles/{taught}").json()["corrections"]["evidence"] == [evidence]
    before, after = (planned(live, tiny_spec(profile=version)) for version in (plain, taught))
    assert after["iteration_seconds"] > 1.2 * before["iteration_seconds"]
    assert read_corrections(profiles_folder / taught) == found
    bad = profile() | {"corrections": {"corrections": [{"kind": "train"}]}}
    body = problem(live.post("/v1/profiles", json=bad), 422, "invalid-spec")
    assert body["errors"][0]["field"].startswith("corrections.corrections.0")


def test_what_runs_taught_of_the_shipped_tables_is_stored(live: TestClient, tmp_path: Path) -> None:
    shipped = planned(live, tiny_spec())
    folder = bases_of([Plan.model_validate(shipped["plan"])])[0].materialised(tmp_path)
    found = corrections_of(
        [
            Evidence(
                run="one",
                call=f"x.{kind}",
                kind=kind,
                role_class="language",
                predicted=1.0,
                measured=4.0,
                iterations=3,
            )
            for kind in ("generate", "forward", "train")
        ]
    )
    taught = {
        "fingerprint": json.loads((folder / "fingerprint.json").read_text()),
        "measurements": [],
        "corrections": found.model_dump(mode="json"),
        "make_default": True,
    }
    version = stored(live, taught)
    assert live.get(f"/v1/profiles/{version}").json()["shapes"] == {}
    after = planned(live, tiny_spec())
    assert after["iteration_seconds"] > 2 * shipped["iteration_seconds"]
    provenance = after["plan"]["provenance"]
    assert provenance["operator_tables"] == shipped["plan"]["provenance"]["operator_tables"]
    assert provenance["measured_profiles"]["cores"].endswith(f" in {version}")


def test_a_profile_that_is_none_is_refused(live: TestClient, tmp_path: Path) -> None:
    version = stored(live, profile())
    h100 = tiny_spec(gpu="h100", profile=version)
    for spec, message in [
        (tiny_spec(profile=str(tmp_path)), "is stored; a folder is read by the command line"),
        (tiny_spec(profile="0" * 12), "no profile '000000000000' is stored"),
        (h100, "was measured on cpu, the pool has h100-80gb-sxm"),
    ]:
        body = problem(live.post("/v1/plans", json=spec), 422, "invalid-spec")
        (error,) = body["errors"]
        assert error["field"] == "cluster.pools.0.profile"
        assert message in error["message"]
        assert "automap profile --server" in error["remedy"]


def test_the_example_has_the_columns_of_its_table() -> None:
    (measured,) = EXAMPLE["measurements"]
    assert set(measured["key"]) == set(COLUMNS[measured["table"]])


def impossible_spec() -> Json:
    """Nothing of it fits, and the spec asks what would."""
    spec = tiny_spec(gpu="a10g", gpus_per_node=1)
    spec["search"] = {"explain_infeasible": True}
    spec["models"]["actor"] = {"architecture": "qwen2.5-1.5b"}
    return spec


def test_the_defaults_of_all_types_are_there_for_remedies(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    version = stored(client, {**profile(device_type="v100-32gb"), "make_default": True})
    stored(client, profile(device_type="l40s-48gb"))
    spec = JobSpec.model_validate(impossible_spec())
    assert materialise_for_remedies(database, tmp_path, spec) == {"v100-32gb": version}
    assert [folder.name for folder in tmp_path.iterdir()] == [version]
    plain = JobSpec.model_validate(impossible_spec() | {"search": {}})
    assert materialise_for_remedies(database, tmp_path, plain) == {}


@pytest.mark.slow
def test_remedies_with_other_gpus_are_priced_with_their_defaults(live: TestClient) -> None:
    version = stored(live, {**profile(device_type="v100-32gb"), "make_default": True})
    found = problem(live.post("/v1/plans", json=impossible_spec()), 422, "infeasible")
    plans = [remedy["plan"] for remedy in found["remedies"]]
    profiles = {
        plan["spec"]["cluster"]["pools"][0]["gpu"]: plan["spec"]["cluster"]["pools"][0]["profile"]
        for plan in plans
    }
    assert profiles == {"v100-32gb": version, "a10g": None}
