"""The link between two nodes of a Ray cluster: buffers sent from one to the other."""

from automap.profiler.cluster import on_node
from automap.profiler.cluster.ray_nodes import WAIT_SECONDS, Node, got
from automap.profiler.errors import ProfileError
from automap.profiler.measure.child_processes import Meeting
from automap.profiler.results.profile_report import LinkReport

LINK_SECONDS = 20.0
LINK_BYTES = (1024, 16_384, 2**18, 2**22, 2**24, 2**26)


def measure_link(first: Node, second: Node) -> LinkReport:
    """Seconds of buffers sent from one node to the other, one process on each.

    Raises:
        ProfileError: nothing came through, or a node was lost.
    """
    port = got(
        first.task(on_node.meeting_port).remote(first.address), first.name, seconds=WAIT_SECONDS
    )
    keys = [{"collective": "send_recv", "num_gpus": 2, "size_bytes": size} for size in LINK_BYTES]
    task = {"keys": keys, "device": first.device, "memory_bytes": 4 * LINK_BYTES[-1]}
    sides = [
        node.task(on_node.send_and_receive).remote(
            task, Meeting(first.address, port, rank, 2), seconds=LINK_SECONDS
        )
        for rank, node in enumerate((first, second))
    ]
    reported, _ = (
        got(side, node.name, seconds=WAIT_SECONDS + LINK_SECONDS)
        for side, node in zip(sides, (first, second), strict=True)
    )
    measured = {
        LINK_BYTES[each["number"]]: each["measurement"]["seconds"]
        for each in reported
        if "measurement" in each
    }
    if not measured:
        raise ProfileError(f"nothing was sent from {first.name} to {second.name}")
    largest = max(measured)
    return LinkReport(
        nodes=(first.name, second.name),
        bytes_per_second=largest / measured[largest],
        seconds=measured[min(measured)],
        largest_bytes=largest,
    )
