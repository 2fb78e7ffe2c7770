"""The page's files: cached, packed, and under a policy that lets nothing else in."""

import gzip
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from automap.service.api import page
from automap.service.api.page import CONTENT_POLICY

SCRIPT = b"console.log('page');" * 20
PACKED = {"Accept-Encoding": "br, gzip"}
PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(b"<!doctype html><title>page</title>")
    (folder / "docs.html").write_bytes(b"<!doctype html><title>docs</title>")
    (folder / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT))
    return folder


def client_of(folder: Path) -> TestClient:
    app = FastAPI(docs_url=None)
    page.install(app, folder)
    return TestClient(app)


@pytest.fixture
def files(built: Path) -> TestClient:
    return client_of(built)


def test_documents_are_asked_for_again_and_hashed_files_never(files: TestClient) -> None:
    for path in ("/", "/docs"):
        assert files.get(path).headers["cache-control"] == "no-cache"
    cached = files.get("/assets/index-abc.js").headers["cache-control"]
    assert cached == "public, max-age=31536000, immutable"


def test_known_file_is_not_sent_again(files: TestClient) -> None:
    first = files.get("/")
    again = files.get("/", headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["content-security-policy"] == CONTENT_POLICY
    assert files.get("/", headers={"If-None-Match": '"other"'}).status_code == 200


def test_packed_file_is_sent_to_who_takes_it(files: TestClient) -> None:
    packed = files.get("/assets/index-abc.js", headers=PACKED)
    plain = files.get("/assets/index-abc.js", headers=PLAIN)
    refused = files.get("/assets/index-abc.js", headers={"Accept-Encoding": "gzip; q=0"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT)
    assert packed.content == plain.content == refused.content == SCRIPT
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert packed.headers["content-type"] == "text/javascript; charset=utf-8"


def test_packed_file_of_an_earlier_build_is_not_sent(built: Path) -> None:
    (built / "assets" / "index-abc.js").write_bytes(b"newer")
    response = client_of(built).get("/assets/index-abc.js", headers=PACKED)
    assert response.content == b"newer"


def test_only_built_files_are_there(files: TestClient, built: Path) -> None:
    (built.parent / "secret").write_text("secret")
    for path in ("/assets/index-abc.js.gz", "/../secret", "/%2e%2e/secret", "/index.html"):
        assert files.get(path).status_code == 404


def test_page_that_is_not_built_says_how(tmp_path: Path) -> None:
    for path in ("/", "/docs"):
        response = client_of(tmp_path).get(path)
        assert response.status_code == 200
        assert "make page" in response.text
        assert response.headers["content-security-policy"] == CONTENT_POLICY


def test_policy_lets_nothing_in_from_elsewhere() -> None:
    policy = dict(part.split(" ", 1) for part in CONTENT_POLICY.split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in CONTENT_POLICY
    assert "http" not in CONTENT_POLICY


def test_every_answer_has_security_headers(client: TestClient) -> None:
    for path, status in (("/v1/plans", 200), ("/healthz", 200), ("/v1/none", 404), ("/", 200)):
        response = client.get(path)
        assert response.status_code == status
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        expected = "default-src 'none'; frame-ancestors 'none'" if path != "/" else CONTENT_POLICY
        assert response.headers["content-security-policy"] == expected


def test_refused_and_failed_requests_have_them_too(client: TestClient) -> None:
    refused = client.get("/healthz", headers={"Host": "elsewhere.example"})
    assert refused.status_code == 403
    assert refused.headers["x-content-type-options"] == "nosniff"
    state = client.app.state  # type: ignore[attr-defined]
    service, state.service = state.service, None
    failed = client.get("/v1/plans")
    state.service = service
    assert failed.status_code == 500
    assert failed.headers["x-content-type-options"] == "nosniff"
