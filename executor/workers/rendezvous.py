"""Where the processes of a torch world find each other.

Torch's store on the network asks nobody for credentials. Processes of one machine therefore meet in
a file that only their user may open; those of several meet on the network that they share, which
must be private.
"""

import errno
import shutil
import socket
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A file of this machine, or a port of the machine that serves the store."""

    host: str
    port: int
    """The store's; with a file a free one, for libraries that want to be told some port."""
    file: str = ""
    """Empty: it is on the network."""

    def store(self, timeout: timedelta) -> dist.Store:
        """A client of it, or the file itself; `timeout`: to wait for what another writes."""
        if not self.file:
            return dist.TCPStore(self.host, self.port, is_master=False, timeout=timeout)
        store = dist.FileStore(self.file)
        store.set_timeout(timeout)
        return store

    def remove(self) -> None:
        """The file and its folder, of which torch leaves both."""
        if self.file:
            shutil.rmtree(Path(self.file).parent, ignore_errors=True)


def in_file() -> Rendezvous:
    """One in a folder of its own, which no other user may open; who is done with it removes it.

    Among the temporary files, not those of Ray's session, whose folder is everybody's to rename in.
    """
    folder = tempfile.mkdtemp(prefix="automap-rendezvous-")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Rendezvous("127.0.0.1", probe.getsockname()[1], f"{folder}/store")


def store_at(host: str, port: int = 0) -> dist.TCPStore:
    """A torch store on a port of this one address, 0: a free one. Torch listens on all of them.

    An address that the machine itself does not have, because a translation of addresses (NAT) makes
    it this one's, cannot be listened on: there, and only there, it is all of them.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own, anywhere = "127.0.0.1", ""
    if family == socket.AF_INET6:
        own, anywhere = ("::1", "::")
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((host, port))
        own = host
    except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:
            listener.close()
            raise
        listener.bind((anywhere, port))
    return dist.TCPStore(
        own,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
    )
