"""The RayCluster: against the fields of KubeRay's v1, what its operator refuses, and Ray itself.

The operator's own schema is in none of the packages that tests may install, so the fields are
written out here; of a pod, whose schema is Kubernetes' own, see `test_kubernetes.py`.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.dockerfiles import ROOT

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "kubernetes"
WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}
GROUP = {
    "template": {"type": "object", "required": ["spec"]},
    "rayStartParams": WORDS,
    "resources": WORDS,
    "labels": WORDS,
}


def _fields(properties: Json, required: list[str]) -> Json:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


HEAD = _fields(
    GROUP
    | {
        "headService": {"type": "object"},
        "serviceType": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
        "enableIngress": {"type": "boolean"},
    },
    ["template"],
)
WORKERS = _fields(
    GROUP
    | {
        "groupName": {"type": "string", "minLength": 1},
        "replicas": COUNT,
        "minReplicas": COUNT,
        "maxReplicas": COUNT,
        "numOfHosts": COUNT,
        "idleTimeoutSeconds": COUNT,
        "suspend": {"type": "boolean"},
        "scaleStrategy": {"type": "object"},
    },
    ["groupName", "minReplicas", "maxReplicas", "template"],
)
SPEC = _fields(
    {
        "rayVersion": {"type": "string"},
        "headGroupSpec": HEAD,
        "workerGroupSpecs": {"type": "array", "items": WORKERS},
        "enableInTreeAutoscaling": {"type": "boolean"},
        "autoscalerOptions": {"type": "object"},
        "headServiceAnnotations": WORDS,
        "gcsFaultToleranceOptions": {"type": "object"},
        "authOptions": {"type": "object"},
        "managedBy": {"type": "string"},
        "suspend": {"type": "boolean"},
    },
    ["headGroupSpec"],
)


@pytest.fixture
def cluster() -> Json:
    found: Json = yaml.safe_load((FOLDER / "ray" / "raycluster.yaml").read_text())
    return found


def groups(cluster: Json) -> Iterator[Json]:
    yield cluster["spec"]["headGroupSpec"]
    yield from cluster["spec"]["workerGroupSpecs"]


def test_it_has_fields_that_kuberay_knows(cluster: Json) -> None:
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    Draft202012Validator(SPEC).validate(cluster["spec"])


def test_what_kuberay_would_refuse_is_noticed(cluster: Json) -> None:
    number, typo = deepcopy(cluster["spec"]), deepcopy(cluster["spec"])
    number["headGroupSpec"]["rayStartParams"]["num-cpus"] = 0
    typo["workerGroupSpecs"][0]["minReplica"] = 1
    for spec in (number, typo):
        assert not Draft202012Validator(SPEC).is_valid(spec)


def test_the_operator_takes_its_names_and_sizes(cluster: Json) -> None:
    name = cluster["metadata"]["name"]
    assert len(name) <= 50  # names of pods and services are made of it
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    workers = cluster["spec"]["workerGroupSpecs"]
    names = [group["groupName"] for group in workers]
    assert len(names) == len(set(names))
    for group in workers:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups(cluster):
        # The operator starts Ray in the first one, and adds its own variables there.
        first = group["template"]["spec"]["containers"][0]
        assert first["name"].startswith("ray-")
        assert "command" not in first


def test_its_ray_is_the_locked_one(cluster: Json) -> None:
    version = cluster["spec"]["rayVersion"]
    for lock in ("executor-cpu", "executor-gpu"):
        text = (ROOT / "requirements" / f"{lock}.lock").read_text()
        assert f"\nray=={version} " in text


def test_the_worker_asks_its_head(cluster: Json) -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    [settings] = kustomization["configMapGenerator"]
    given = dict(each.split("=", 1) for each in settings["literals"])
    [head] = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in head["ports"]}
    service = f"{cluster['metadata']['name']}-head-svc"  # as the operator calls it
    assert given["AUTOMAP_RAY_ADDRESS"] == f"http://{service}:{ports['dashboard']}"


def test_ray_start_has_its_options(cluster: Json) -> None:
    ray = find_spec("ray")
    if ray is None or ray.origin is None:
        pytest.skip("needs make executor")
    # Read, not imported: with it comes the whole of Ray Serve.
    text = (Path(ray.origin).parent / "scripts" / "scripts.py").read_text(encoding="utf-8")
    for group in groups(cluster):
        for name in group["rayStartParams"]:
            assert f'"--{name}"' in text
