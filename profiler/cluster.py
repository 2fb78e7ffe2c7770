"""The cluster spec of the machine that was measured, as a file to copy into a job spec."""

import os
from pathlib import Path

import yaml

from planner.cluster import GIB
from profiler.devices import Device

FILE = "cluster.yaml"
HEADER = """\
# This machine, as it was found; put it into a job spec in place of its `cluster`. Links are left to
# the catalogue: inside the machine the measured collectives apply, and nothing was measured beyond.
"""


def write_cluster(folder: Path, device: Device) -> None:
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
        "profile": str(folder),
    }
    text = yaml.safe_dump({"cluster": {"pools": [pool]}}, sort_keys=False)
    path.write_text(HEADER + text, encoding="utf-8")
