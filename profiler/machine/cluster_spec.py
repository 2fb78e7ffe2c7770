"""The cluster spec of the machine that was measured, as a file to copy into a job spec."""

import os
from collections.abc import Iterable
from pathlib import Path

import yaml

from automap.planner.cost import HOST_LINK_EFFICIENCY
from automap.planner.profiles import Row
from automap.planner.units import GIB
from automap.profiler.machine.devices import Device

FILE = "cluster.yaml"
HEADER = """\
# This machine, as it was found; put it into a job spec in place of its `cluster`. Links that were
# measured are given per device and direction; the others are left to the catalogue.
"""


def write_cluster(folder: Path, device: Device, rows: Iterable[Row] = ()) -> None:
    """Write the spec of one node like this one, priced with the profile in the folder.

    One that is there is left: the user may have changed it.
    """
    path = folder / FILE
    if path.exists():
        return
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pool = {
        "name": device.kind if device.kind == "cpu" else "gpu",
        "gpu": device.gpu.name,
        "num_nodes": 1,
        "gpus_per_node": device.count,
        "host_memory_bytes": memory // GIB * GIB or memory,
        **measured_links(rows),
        "profile": str(folder),
    }
    text = yaml.safe_dump({"cluster": {"pools": [pool]}}, sort_keys=False)
    path.write_text(HEADER + text, encoding="utf-8")


def measured_links(rows: Iterable[Row]) -> dict[str, int]:
    """The links of a pool inside its nodes, of those that were measured.

    Between two devices: the largest buffer sent. To the host: the slower direction of the largest
    copies, as the link whose usual share they are, because copies are priced at that share of it.
    """
    between: dict[int, float] = {}
    host: dict[int, float] = {}
    for table, key, seconds in rows:
        size = int(key.get("size_bytes", 0))
        if seconds <= 0:
            continue
        if table == "collectives" and (key["collective"], key["num_gpus"]) == ("send_recv", 2):
            between[size] = size / seconds
        elif table == "host_copies":
            host[size] = min(size / seconds, host.get(size, float("inf")))
    found = {}
    if between:
        found["intra_node_bytes_per_second"] = round(between[max(between)])
    if host:
        found["host_link_bytes_per_second"] = round(host[max(host)] / HOST_LINK_EFFICIENCY)
    return found
