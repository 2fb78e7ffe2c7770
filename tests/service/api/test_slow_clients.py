"""Requests that are not sent to their end cost nothing for ever."""

import json
import socket
import threading
import time
from collections.abc import Iterator

import anyio.to_thread
import pytest
from fastapi.testclient import TestClient

from automap.service.app import create_app
from automap.service.schemas.documents import MAX_VALUES, DocumentError, load_document
from tests.service.support.databases import migrated, settings_for
from tests.service.support.servers import Server, serving

SECONDS = 1.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path_factory.mktemp('slow')}/automap.db"
    migrated(url).dispose()
    with serving(url, request_seconds=SECONDS) as server:
        yield server


def answer_to(server: Server, *pieces: bytes) -> bytes:
    """What comes until the server closes the connection, of a request sent in pieces."""
    port = server.client.base_url.port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for piece in pieces:
            client.sendall(piece)
            time.sleep(0.3)
        received = b""
        try:
            while piece := client.recv(4096):
                received += piece
        except ConnectionResetError:
            pass
        return received


@pytest.mark.parametrize("pieces", [(), (b"GET /heal",), (b"GET / HTTP/1.1\r\n", b"Host: x\r\n")])
def test_a_head_that_does_not_come_ends_the_connection(
    server: Server, pieces: tuple[bytes, ...]
) -> None:
    began = time.monotonic()
    assert answer_to(server, *pieces) == b""
    assert time.monotonic() - began < 5 * SECONDS


HEAD = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("length", [b"Content-Length: 100\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_that_does_not_come_is_refused(server: Server, length: bytes) -> None:
    began = time.monotonic()
    body = b'5\r\n{"a":\r\n' if b"chunked" in length else b'{"a":'
    received = answer_to(server, HEAD + length + b"\r\n", body)
    assert time.monotonic() - began < 5 * SECONDS
    assert received.startswith(b"HTTP/1.1 408 ")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["type"] == "/problems/request-timeout"


def test_a_body_too_large_that_does_not_come_ends_the_connection(server: Server) -> None:
    received = answer_to(server, HEAD + b"Content-Length: 100000000\r\n\r\n", b"[")
    assert received.startswith(b"HTTP/1.1 413 ")


def test_a_body_has_so_many_values_at_most() -> None:
    for text in ("[" + "[]," * MAX_VALUES + "[]]", "[" + "0," * MAX_VALUES + "0]"):
        with pytest.raises(DocumentError, match="values"):
            load_document(text, media="json", max_bytes=2**25)


def test_health_needs_no_thread_while_large_bodies_are_read(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The one thread that this service may use reads a body meanwhile."""
    url = f"sqlite:///{tmp_path_factory.mktemp('busy')}/automap.db"
    migrated(url).dispose()
    large = b"[" + b"[]," * 600_000 + b"0]"
    with TestClient(create_app(settings_for(url, queue_planners=0))) as client:
        assert client.portal is not None
        client.portal.call(_allow_one_thread)
        answers: list[int] = []

        def post() -> None:
            headers = {"Content-Type": "application/json"}
            answers.append(client.post("/v1/profiles", content=large, headers=headers).status_code)

        posting = threading.Thread(target=post)
        posting.start()
        healthy = 0
        while posting.is_alive():
            assert client.get("/healthz").status_code == 200
            healthy += not answers
        posting.join()
    assert answers == [422]
    assert healthy >= 3


async def _allow_one_thread() -> None:
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param((b"GET /healthz HTTP/1.1\r\nX: ", b"x" * 70_000), id="one header"),
        pytest.param((b"GET /healthz HTTP/1.1\r\n", b"X: x\r\n" * 12_000), id="many headers"),
        pytest.param((b"GET /", b"x" * 70_000), id="the path"),
        pytest.param(
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5;" + b"x" * 70_000),
            id="a chunk's name",
        ),
        pytest.param(
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n" * 12_000), id="trailers"
        ),
    ],
)
def test_what_is_neither_head_nor_body_is_bounded(
    server: Server, pieces: tuple[bytes, ...]
) -> None:
    received = answer_to(server, *pieces)
    assert received.startswith(b"HTTP/1.1 400 ") or received == b""
    assert server.client.get("/healthz").status_code == 200


def test_requests_of_one_connection_are_answered_one_after_the_other(server: Server) -> None:
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert answer_to(server, 2000 * ask + last).count(b"HTTP/1.1 200 ") == 2001
