"""Who is at the other end of a connection on this machine: Linux tells in /proc."""

import os
import socket
import sys
from pathlib import Path

_OPEN = ("01", "04", "05")
"""Established, or with the client's sending half closed: it has sent all and waits for an answer
(FIN_WAIT1, FIN_WAIT2). Once the client has closed both, the entry has no inode any more, and root
as its user, whoever it was."""
_TABLES = Path("/proc/net")
Address = tuple[str, int | None]


def is_foreign(client: Address | None, server: Address | None) -> bool:
    """Whether a connection on loopback is another user's, neither ours nor root's.

    One that its user has closed already, also before it was looked at, is nobody's, and foreign.
    False where the system does not tell.
    """
    try:
        users = [] if client is None or server is None else _users(client, server)
    except OSError:
        return False
    return next(iter(users), None) not in (0, os.geteuid())


def _users(client: Address, server: Address) -> list[int]:
    """Who has the client's end.

    A socket for both families that speaks the older one stands in the table of the newer.

    Raises:
        OSError: there are no such tables.
    """
    if ":" in client[0]:
        return _listed("tcp6", client, server)
    found = _listed("tcp", client, server)
    if not found and (_TABLES / "tcp6").exists():
        mapped = [(f"::ffff:{host}", port) for host, port in (client, server)]
        found = _listed("tcp6", mapped[0], mapped[1])
    return found


def _listed(table: str, client: Address, server: Address) -> list[int]:
    wanted = [_written(client), _written(server)]
    lines = map(str.split, (_TABLES / table).read_text().splitlines()[1:])
    return [
        int(fields[7])
        for fields in lines
        if fields[1:3] == wanted and fields[3] in _OPEN and fields[9] != "0"
    ]


def _written(address: Address) -> str:
    """An address as the kernel writes it: words of the host's order, in hexadecimal."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{port or 0:04X}"
