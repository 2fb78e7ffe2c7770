"""A service on loopback without keys answers its own user, not all of the machine."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from automap.service.api.peers import is_foreign
from tests.service.support.databases import migrated
from tests.service.support.servers import Server, serving

SOMEBODY = 65534


@contextmanager
def as_somebody() -> Iterator[None]:
    """Sockets that are made meanwhile belong to another user."""
    os.seteuid(SOMEBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path_factory.mktemp('users')}/automap.db"
    migrated(url).dispose()
    with serving(url) as server:
        yield server


def connected(port: int, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    client = socket.socket(family, socket.SOCK_STREAM)
    client.settimeout(10)
    client.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
    return client


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@needs_root
def test_another_user_of_the_machine_is_refused(server: Server) -> None:
    port = server.client.base_url.port
    assert port is not None
    with as_somebody():
        client = connected(port)
    with client:
        client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while piece := client.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 403 ")
    assert b'"/problems/other-user"' in received
    assert server.client.get("/v1/models").status_code == 200


@needs_root
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_kernel_knows_whose_a_connection_is(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        try:
            listener.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        address = listener.getsockname()[:2]
        with connected(address[1], family) as ours:
            assert not is_foreign(ours.getsockname()[:2], address)
        with as_somebody():
            theirs = connected(address[1], family)
        name = theirs.getsockname()[:2]
        assert is_foreign(name, address)
        theirs.close()
        assert is_foreign(name, address)  # gone, and nobody's


def test_a_connection_that_nobody_has_any_more_is_foreign() -> None:
    """Who resets it before it is looked at could be anybody, and what was sent is still read."""
    assert is_foreign(None, ("127.0.0.1", 1))
    assert is_foreign(("127.0.0.1", 1), ("127.0.0.1", 2))


def test_a_client_that_has_sent_all_is_still_ours(server: Server) -> None:
    """Half-closed: it says so with the end of its request, and waits for the answer."""
    port = server.client.base_url.port
    assert port is not None
    for _ in range(5):
        with connected(port) as client:
            client.sendall(b"GET /v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            assert b" 403 " not in client.recv(64)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = listener.getsockname()
        with connected(address[1]) as client:
            client.shutdown(socket.SHUT_WR)
            assert not is_foreign(client.getsockname(), address)
            accepted, _ = listener.accept()
            with accepted:
                time.sleep(0.05)  # acknowledged: FIN_WAIT2
                assert not is_foreign(client.getsockname(), address)
                name = client.getsockname()
                client.close()  # the entry stays, with root as its user
                assert is_foreign(name, address)


@needs_root
def test_who_is_refused_sees_why_however_much_it_sends(server: Server) -> None:
    """What is left unread when a connection is closed makes the system take the answer back."""
    port = server.client.base_url.port
    assert port is not None
    with as_somebody():
        client = connected(port)
    with client:
        body = b"x" * 2**22
        head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        client.sendall(head % len(body))
        time.sleep(0.1)
        client.sendall(body)
        received = b""
        while piece := client.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 403 ")
    assert received.endswith(b"}")


def test_a_socket_for_both_families_is_its_users_own(server: Server) -> None:
    port = server.client.base_url.port
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        client.connect(("::ffff:127.0.0.1", port))
        client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
