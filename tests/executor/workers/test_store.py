"""torch's store takes connections without credentials, so it listens where it must and no more."""

from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from automap.executor.workers.process import store_at


def test_it_listens_on_one_address_alone() -> None:
    store = store_at("127.0.0.1")
    assert listening(store.port) == ["0100007F"]
    other = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=10))
    other.set("key", "value")
    assert store.get("key") == b"value"
    usual = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert listening(usual.port) != ["0100007F"]  # why there is a function


def listening(port: int) -> list[str]:
    """The addresses, as the kernel writes them, on which this machine listens at a port."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.append(address)
    return found


def test_an_address_of_a_translation_is_served_all_the_same() -> None:
    """192.0.2.1 is nobody's: as an address that only a router knows, it cannot be bound."""
    store = store_at("192.0.2.1")
    other = dist.TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=10))
    other.set("key", "value")
    assert store.get("key") == b"value"
