"""torch's store takes connections without credentials: on one machine processes do without it."""

import stat
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import ray
import torch.distributed as dist

from automap.executor.workers import rendezvous
from automap.executor.workers.rendezvous import Rendezvous, store_at
from tests.executor.local_ray import local_ray


class Opening:
    """In a process of Ray, as those of a run are."""

    def ports(self) -> list[int]:
        found = psutil.Process().net_connections("tcp")
        return [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]

    def opened(self) -> Rendezvous:
        self.meeting = rendezvous.in_file()
        self.meeting.store(timedelta(seconds=10)).set("key", "value")
        return self.meeting


@pytest.mark.many_processes
def test_processes_of_one_machine_meet_where_no_other_user_can() -> None:
    with local_ray():
        process = ray.remote(Opening).remote()
        before = ray.get(process.ports.remote())
        meeting = ray.get(process.opened.remote())
        assert ray.get(process.ports.remote()) == before  # it listens nowhere
        assert meeting.store(timedelta(seconds=10)).get("key") == b"value"
        assert stat.S_IMODE(Path(meeting.file).parent.stat().st_mode) == 0o700
        meeting.remove()
        assert not Path(meeting.file).parent.exists()


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
