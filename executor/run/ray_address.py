"""Whether anybody answers where a Ray cluster is said to be."""

import socket

CONNECT_SECONDS = 10.0


def knock(address: str) -> None:
    """Raise OSError at once if nobody answers at HOST:PORT, which Ray would ask for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
