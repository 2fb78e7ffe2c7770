"""Every kind of node of a Ray cluster: found, one of each profiled, and the link between two."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.exceptions import RayError

from automap.planner.units import GIB
from automap.profiler.cluster import on_node
from automap.profiler.cluster.ray_nodes import (
    WAIT_SECONDS,
    Node,
    connect,
    got,
    in_a_line,
    lost,
    nodes,
)
from automap.profiler.errors import NodeLostError, ProfileError
from automap.profiler.machine.cluster_spec import FILE as CLUSTER_FILE
from automap.profiler.machine.cluster_spec import measured_links
from automap.profiler.machine.fingerprint import FILE as FINGERPRINT
from automap.profiler.measure.child_processes import Meeting
from automap.profiler.results.journal import FILE as MEASUREMENTS
from automap.profiler.results.journal import Journal
from automap.profiler.results.profile_report import (
    ClusterReport,
    KindReport,
    LinkReport,
    ProfileReport,
    Progress,
)
from automap.profiler.settings import ProfileSettings

HEADER = """\
# The nodes that Ray knows, as they were found; put it into a job spec in place of its `cluster`.
# Between nodes the measured speed of one device's link applies; where several devices of a node
# share a network card, divide it among them.
"""
Listener = Callable[[Progress], None]
LINK_SECONDS = 20.0
LINK_BYTES = (1024, 16_384, 2**18, 2**22, 2**24, 2**26)


def profile_cluster(
    settings: ProfileSettings,
    listener: Listener,
    *,
    measured: Callable[[KindReport], None] = lambda _: None,
) -> ClusterReport:
    """Profile one node of each kind into a folder of its own, going on with what is there.

    A kind that cannot be measured is named in the report beside those that could. `measured` is
    called with each as soon as it is done.

    Raises:
        ProfileError: no Ray there, no node with such devices, or no kind can be measured.
    """
    connect(settings.ray_address)
    try:
        found, failures = nodes(settings.device)
        kinds = device_kinds(found)
        settings.output.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(len(kinds)) as threads:
            outcomes = list(
                threads.map(
                    lambda name: outcome_of(name, kinds[name], settings, listener, measured), kinds
                )
            )
        reports = [each for each in outcomes if isinstance(each, KindReport)]
        missed = [each for each in outcomes if isinstance(each, ProfileError)]
        if not reports:
            raise next((each for each in missed if isinstance(each, NodeLostError)), missed[0])
        cluster = {"pools": pools_of(kinds, reports)}
        file = settings.output / CLUSTER_FILE
        if not file.exists():
            text = yaml.safe_dump({"cluster": cluster}, sort_keys=False)
            file.write_text(HEADER + text, encoding="utf-8")
    finally:
        ray.shutdown()
    return ClusterReport(
        folder=str(settings.output),
        cluster_file=str(file),
        cluster=cluster,
        kinds=reports,
        failures=[*failures, *map(in_a_line, missed)],
    )


def device_kinds(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Nodes that are alike, under the name that their pool and folder get."""
    alike: dict[str, list[Node]] = {}
    for node in nodes:
        alike.setdefault(node.kind, []).append(node)
    named: dict[str, list[Node]] = {}
    for members in alike.values():
        device = members[0].found["identity"]["device_type"]
        taken = sum(name.partition("_")[0] == device for name in named)
        named[f"{device}_{taken + 1}" if taken else device] = members
    return named


def outcome_of(
    name: str,
    nodes: Sequence[Node],
    settings: ProfileSettings,
    listener: Listener,
    measured: Callable[[KindReport], None],
) -> KindReport | ProfileError:
    try:
        report = _profiled(name, nodes, settings, listener)
    except ProfileError as error:
        return error
    measured(report)
    return report


def _profiled(
    name: str, nodes: Sequence[Node], settings: ProfileSettings, listener: Listener
) -> KindReport:
    """One node's profile; where it is lost or its devices are taken, the next node's."""
    folder = settings.output.absolute() / name
    errors: list[ProfileError] = []
    before: dict[str, bytes] = {}
    for node in nodes:
        kept = _Kept()
        try:
            report = _measured(node, folder, settings, listener, before, kept)
            break
        except ProfileError as error:
            errors.append(error)
            before = kept.files() or before
    else:
        if not (folder / MEASUREMENTS).exists():  # else the nodes measure into the same one
            _keep(folder, before)
        any_lost = any(isinstance(error, NodeLostError) for error in errors)
        raise (NodeLostError if any_lost else ProfileError)(
            f"no node of the kind {name} could be measured: {in_a_line(errors[0])}",
            [in_a_line(error) for error in errors[1:]],
        )
    remarks = [in_a_line(error) for error in errors]
    link = None
    well = nodes[len(errors) :]
    if len(well) > 1:
        try:
            link = measure_link(well[0], well[1])
        except ProfileError as error:
            remarks.append(f"link: {in_a_line(error)}")
    return KindReport(
        name=name,
        nodes=[node.name for node in [*_still_there(nodes, errors), *well]],
        profile=report,
        link=link,
        remarks=remarks,
    )


def _still_there(nodes: Sequence[Node], errors: Sequence[ProfileError]) -> list[Node]:
    """Nodes that could not be measured and are still in the cluster."""
    return [
        node
        for node, error in zip(nodes, errors, strict=False)
        if not isinstance(error, NodeLostError)
    ]


@dataclass
class _Kept:
    """What a node has measured so far: the next of its kind goes on from there if it is lost."""

    fingerprint: str = ""
    measurements: list[str] = field(default_factory=list)

    def take(self, reported: dict[str, str]) -> None:
        """Lines of the journal that are new."""
        self.fingerprint = reported["fingerprint"]
        self.measurements.append(reported["measurements"])

    def files(self) -> dict[str, bytes]:
        """Name and content of a profile folder's files; none if nothing was measured."""
        if not self.measurements:
            return {}
        text = "".join(self.measurements)
        return {FINGERPRINT: self.fingerprint.encode(), MEASUREMENTS: text.encode()}


def _measured(
    node: Node,
    folder: Path,
    settings: ProfileSettings,
    listener: Listener,
    before: dict[str, bytes],
    kept: _Kept,
) -> ProfileReport:
    changes = {"output": folder, "device": node.device, "ray_address": None}
    wanted = settings.model_copy(update=changes).model_dump_json()
    report = None
    for reported in _reported(node, wanted, before):
        if "progress" in reported:
            progress = Progress.model_validate(reported["progress"])
            listener(progress.model_copy(update={"table": f"{folder.name}: {progress.table}"}))
        elif "journal" in reported:
            kept.take(reported["journal"])
        elif "error" in reported:
            raise ProfileError(
                f"{node.name}: {reported['error']['headline']}", reported["error"]["lines"]
            )
        elif "report" in reported:
            report = ProfileReport.model_validate(reported["report"])
        else:
            _keep(folder, reported["files"])
    if report is None:
        raise ProfileError(f"{node.name}: it ended without a report")
    return report


def _reported(node: Node, wanted: str, before: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    try:
        for reference in node.task(on_node.measure, num_returns="streaming").remote(wanted, before):
            yield ray.get(reference)
    except RayError as error:
        raise lost(node.name, error, "start again to go on with what was measured") from None


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    """Copy what was measured elsewhere; here it is the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def pools_of(kinds: dict[str, list[Node]], reports: Sequence[KindReport]) -> list[dict[str, Any]]:
    """The cluster as a job spec has it; a kind that was not measured has no profile."""
    by_name = {report.name: report for report in reports}
    pools = []
    for name, members in kinds.items():
        report = by_name.get(name)
        memory = members[0].found["host_memory_bytes"]
        pool: dict[str, Any] = {
            "name": name,
            "gpu": members[0].found["identity"]["device_type"],
            "num_nodes": len(members if report is None else report.nodes),
            "gpus_per_node": min(members[0].reserved, members[0].found["count"]),
            "host_memory_bytes": memory // GIB * GIB or memory,
        }
        if report is not None:
            pool |= _links_inside(Path(report.profile.folder))
            pool["profile"] = report.profile.folder
            if report.link is not None:
                pool["inter_node_bytes_per_second"] = round(report.link.bytes_per_second)
        pools.append(pool)
    return pools


def _links_inside(folder: Path) -> dict[str, int]:
    """What was measured between devices of a node, and between them and their host."""
    with closing(Journal(folder)) as journal:
        return measured_links(journal.rows())


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
