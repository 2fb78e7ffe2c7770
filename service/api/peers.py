"""Who is at the other end of a connection on this machine: Linux tells in /proc."""

import os
import socket
import sys
from pathlib import Path

_ESTABLISHED = "01"
Address = tuple[str, int | None]


def is_foreign(client: Address | None, server: Address | None) -> bool:
    """Whether a connection on loopback is another user's, neither ours nor root's.

    One that its user has closed already is nobody's, and foreign. False where the system does not
    tell.
    """
    if client is None or server is None:
        return False
    table = Path("/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp")
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return False
    wanted = [_written(client), _written(server), _ESTABLISHED]
    users = (int(fields[7]) for fields in map(str.split, lines) if fields[1:4] == wanted)
    return next(users, None) not in (0, os.geteuid())


def _written(address: Address) -> str:
    """An address as the kernel writes it: words of the host's order, in hexadecimal."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    text = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{text}:{port or 0:04X}"
