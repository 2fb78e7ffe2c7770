"""The Kubernetes manifests: each against its schema, and against what the service serves."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from automap.service.app import create_app
from automap.service.settings import SECRETS_FOLDER, Settings
from tests.deploy.dockerfiles import ROOT, SECRETS, USER, VARIABLES

Json = dict[str, Any]
FOLDER = ROOT / "deploy" / "kubernetes"
FOLDERS = (FOLDER, FOLDER / "ray")
KINDS = (
    *("Namespace", "Job", "Deployment", "Service", "PodDisruptionBudget"),
    *("PersistentVolumeClaim", "NetworkPolicy"),
)


def documents(folder: Path) -> Iterator[tuple[str, Json]]:
    for file in sorted(folder.glob("*.yaml")):
        if file.name != "kustomization.yaml":
            for document in yaml.safe_load_all(file.read_text()):
                yield f"{file.name} {document['kind']}", document


ALL = [each for folder in FOLDERS for each in documents(folder)]
NAMES = [name for name, _ in ALL]
DOCUMENTS = [document for _, document in ALL]


def pod_templates(document: Json) -> Iterator[Json]:
    match document["kind"]:
        case "Deployment" | "Job":
            yield document["spec"]["template"]
        case "RayCluster":
            yield document["spec"]["headGroupSpec"]["template"]
            for group in document["spec"]["workerGroupSpecs"]:
                yield group["template"]


TEMPLATES = [template for document in DOCUMENTS for template in pod_templates(document)]
CONTAINERS = [each for template in TEMPLATES for each in template["spec"]["containers"]]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_manifests_are_as_their_schemas_say(document: Json) -> None:
    if document["kind"] in KINDS:
        kubernetes_validate.validate(document, "1.34", strict=True)
    else:
        # Its pods are checked here, all else of it in test_raycluster.py.
        assert document["kind"] == "RayCluster"
    for template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "any"}}
        kubernetes_validate.validate({**pod, "template": template}, "1.34", strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=["automap", "ray"])
def test_a_kustomization_names_all_files_and_images(folder: Path) -> None:
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    used = {
        container["image"]
        for _, document in documents(folder)
        for template in pod_templates(document)
        for container in template["spec"]["containers"]
    }
    assert {image["name"] for image in kustomization["images"]} == used


@pytest.mark.parametrize("folder", FOLDERS, ids=["automap", "ray"])
def test_kubectl_puts_them_together(folder: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, check=True)
    for document in yaml.safe_load_all(done.stdout):
        if document["kind"] != "RayCluster":
            kubernetes_validate.validate(document, "1.34", strict=True)


def test_the_service_is_told_what_it_reads() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    [configuration] = kustomization["configMapGenerator"]
    given = dict(literal.split("=", 1) for literal in configuration["literals"])
    assert set(given) <= VARIABLES
    for container in CONTAINERS:
        names = {each["name"] for each in container.get("env", [])}
        assert {name for name in names if name.startswith("AUTOMAP_")} <= VARIABLES
    for template in TEMPLATES:
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for container in template["spec"]["containers"]:
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            items = volumes[mounts[given[SECRETS_FOLDER]]]["secret"]["items"]
            assert {item["path"] for item in items} <= SECRETS | {"ray_token"}
            assert all(item["key"] == item["path"] for item in items)
            # Only the API has the keys to itself.
            has_keys = "automap_api_keys" in {item["path"] for item in items}
            assert has_keys == (container["name"] == "api")


@pytest.mark.slow
def test_what_is_probed_is_served(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/a.db"))
    served = set(app.openapi()["paths"])
    [api] = [each for each in CONTAINERS if each["name"] == "api"]
    probes = [api[name]["httpGet"] for name in api if name.endswith("Probe")]
    paths = {probe["path"].partition("?")[0] for probe in probes}
    assert paths == {"/healthz", "/readyz"} <= served
    assert {probe["port"] for probe in probes} == {api["ports"][0]["name"]}
    app.state.service.database.dispose()


@pytest.mark.parametrize(
    "template", TEMPLATES, ids=lambda each: each["spec"]["containers"][0]["name"]
)
def test_pods_have_no_privileges_and_bounded_memory(template: Json) -> None:
    pod = template["spec"]
    assert pod["automountServiceAccountToken"] is False
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, USER)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
        if container["image"] == "automap" or container["name"] == "worker":
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_selectors_select_the_pods() -> None:
    labels = [template["metadata"]["labels"] for template in TEMPLATES if "metadata" in template]
    for document in DOCUMENTS:
        spec = document.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if document["kind"] == "RayCluster" or selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        if "ray.io/cluster" in wanted:  # KubeRay's own label
            clusters = [
                each["metadata"]["name"] for each in DOCUMENTS if each["kind"] == "RayCluster"
            ]
            assert wanted["ray.io/cluster"] in clusters
        else:
            assert any(wanted.items() <= each.items() for each in labels), wanted
