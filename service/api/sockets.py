"""The sockets of the service, bound before anything else is done."""

import errno
import socket
import sys
from contextlib import ExitStack


class AddressError(Exception):
    """The host and port of the settings cannot be listened on."""


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """A bound socket for every address that the host's name stands for, as for `localhost`.

    Raises AddressError with the cause in one line.
    """
    absent: OSError | None = None
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE, proto=socket.IPPROTO_TCP
        )
        with ExitStack() as unless_all_are_bound:
            sockets = []
            for family, _, _, _, address in dict.fromkeys(found):
                try:
                    listener = _bound(family, address)
                except OSError as error:
                    # A name may stand for an IPv6 address on a machine without IPv6.
                    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                        raise
                    absent = error
                    continue
                sockets.append(unless_all_are_bound.enter_context(listener))
            if not sockets and absent is not None:
                raise absent
            unless_all_are_bound.pop_all()
            return sockets
    except (OSError, UnicodeError) as error:
        cause = (isinstance(error, OSError) and error.strerror) or str(error)
        raise AddressError(f"cannot listen on {host}:{port}: {cause}") from error


def _bound(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A server that was just stopped would keep its port unusable for a minute; on Windows the
        # option means that a port in use can be taken.
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener
