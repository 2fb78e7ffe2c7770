"""Every kind of node of a Ray cluster: found, one of each profiled, and the link between two."""

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.exceptions import GetTimeoutError, NodeDiedError, RayError, WorkerCrashedError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from executor.ray_address import knock
from planner.cluster import GIB
from profiler import on_node
from profiler.cluster import FILE as CLUSTER_FILE
from profiler.errors import NodeLostError, ProfileError
from profiler.fingerprint import FILE as FINGERPRINT
from profiler.journal import FILE as MEASUREMENTS
from profiler.processes import Meeting
from profiler.report import ClusterReport, KindReport, LinkReport, ProfileReport, Progress
from profiler.settings import DeviceKind, ProfileSettings

WAIT_SECONDS = 120.0
"""For a node whose devices others use, and for its libraries to be imported."""
LINK_SECONDS = 20.0
LINK_BYTES = (1024, 16_384, 2**18, 2**22, 2**24, 2**26)
HEADER = """\
# The nodes that Ray knows, as they were found; put it into a job spec in place of its `cluster`.
# Between nodes the measured speed of one device's link applies; where several devices of a node
# share a network card, divide it among them.
"""
Listener = Callable[[Progress], None]
_LOST = (NodeDiedError, WorkerCrashedError)


@dataclass(frozen=True)
class Node:
    """A node of the cluster with devices to measure."""

    id: str
    name: str
    address: str
    device: DeviceKind
    reserved: int
    """Devices that Ray gives out there; a task that holds them all has the node to itself."""
    found: dict[str, Any]

    @property
    def kind(self) -> str:
        """Equal for nodes whose measurements are interchangeable."""
        return json.dumps([self.found["identity"], self.reserved], sort_keys=True)

    def task(self, function: Any, **options: Any) -> Any:
        """The function as a Ray task that holds this node's devices."""
        return _held(function, self.id, self.device, self.reserved, **options)


def profile_cluster(
    settings: ProfileSettings,
    listener: Listener,
    *,
    measured: Callable[[KindReport], None] = lambda _: None,
) -> ClusterReport:
    """Profile one node of each kind into a folder of its own, going on with what is there.

    A kind that cannot be measured is named in the report beside those that could. `measured` is
    told of each as soon as it is done.

    Raises:
        ProfileError: no Ray there, no node with such devices, or no kind can be measured.
    """
    _connect(settings.ray_address)
    try:
        found, failures = nodes(settings.device)
        kinds = _kinds(found)
        settings.output.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(len(kinds)) as threads:
            outcomes = list(
                threads.map(
                    lambda name: _outcome(name, kinds[name], settings, listener, measured), kinds
                )
            )
        reports = [each for each in outcomes if isinstance(each, KindReport)]
        missed = [each for each in outcomes if isinstance(each, ProfileError)]
        if not reports:
            raise next((each for each in missed if isinstance(each, NodeLostError)), missed[0])
        cluster = {"pools": _pools(kinds, reports)}
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
        failures=[*failures, *map(_in_a_line, missed)],
    )


def _in_a_line(error: ProfileError) -> str:
    return "; ".join([error.headline, *error.lines])


def _connect(address: str | None) -> None:
    try:
        if address is not None:
            knock(address)
        with _own_signal_handlers():
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (RayError, OSError, RuntimeError, ValueError) as error:
        raise ProfileError(
            f"--ray-address: no Ray answers at {address}: {(str(error).splitlines() or [''])[0]}",
            ["give HOST:PORT of the head node, or auto on a node of the cluster"],
        ) from None


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Those that were there: Ray puts its own in their place."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def nodes(kind: DeviceKind | None) -> tuple[list[Node], list[str]]:
    """The nodes with devices of the kind; without one, GPUs where a node has any.

    And those that cannot be looked at, each named with the reason.

    Raises:
        ProfileError: there is none.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = []
    for node in alive:
        device = kind or ("cuda" if node["Resources"].get("GPU") else "cpu")
        count = int(node["Resources"].get("GPU" if device == "cuda" else "CPU", 0))
        if count:
            look = _held(on_node.look, node["NodeID"], device, count).remote(device)
            asked.append((node, device, count, look))
    if not asked:
        raise ProfileError(
            f"no node of the {len(alive)} that Ray knows has a {kind or 'device'} to measure",
            ["give --device cpu, or start the nodes with their GPUs"],
        )
    found: list[Node] = []
    failures: list[ProfileError] = []
    deadline = time.monotonic() + WAIT_SECONDS
    for node, device, count, look in asked:
        name = node["NodeManagerHostname"]
        try:
            seen = _got(look, name, seconds=max(deadline - time.monotonic(), 0.0))
        except ProfileError as error:
            failures.append(error)
            continue
        found.append(
            Node(
                id=node["NodeID"],
                name=name,
                address=node["NodeManagerAddress"],
                device=device,
                reserved=count,
                found=seen,
            )
        )
    if not found:
        raise ProfileError(
            failures[0].headline, [*failures[0].lines, *map(_in_a_line, failures[1:])]
        )
    return found, [_in_a_line(each) for each in failures]


def _held(function: Any, node: str, device: DeviceKind, count: int, **options: Any) -> Any:
    holding = {"num_gpus": count, "num_cpus": 0} if device == "cuda" else {"num_cpus": count}
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(
        scheduling_strategy=here, max_retries=0, **holding, **options
    )


def _got(reference: Any, node: str, *, seconds: float) -> Any:
    try:
        return ray.get(reference, timeout=seconds)
    except GetTimeoutError:
        ray.cancel(reference, force=True)
        raise ProfileError(
            f"{node}: its devices were not free for {WAIT_SECONDS:.0f} s",
            ["end what runs there, or profile when it is done"],
        ) from None
    except ProfileError as error:  # Ray's copy of it
        raise ProfileError(f"{node}: {error.headline}", error.lines) from None
    except RayError as error:
        raise _lost(node, error) from None


def _lost(node: str, error: RayError, *lines: str) -> ProfileError:
    """Ray's error, with the node it is about."""
    what = "was lost" if isinstance(error, _LOST) else (str(error).splitlines() or [""])[0]
    return NodeLostError(f"{node}: {what}", lines)


def _kinds(nodes: Sequence[Node]) -> dict[str, list[Node]]:
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


def _outcome(
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
        lost = any(isinstance(error, NodeLostError) for error in errors)
        raise (NodeLostError if lost else ProfileError)(
            f"no node of the kind {name} could be measured: {_in_a_line(errors[0])}",
            [_in_a_line(error) for error in errors[1:]],
        )
    remarks = [_in_a_line(error) for error in errors]
    link = None
    well = nodes[len(errors) :]
    if len(well) > 1:
        try:
            link = _link(well[0], well[1])
        except ProfileError as error:
            remarks.append(f"link: {_in_a_line(error)}")
    return KindReport(
        name=name,
        nodes=[node.name for node in nodes],
        profile=report,
        link=link,
        remarks=remarks,
    )


@dataclass
class _Kept:
    """What a node has measured so far: the next of its kind goes on from there if it is lost."""

    fingerprint: str = ""
    measurements: list[str] = field(default_factory=list)

    def take(self, told: dict[str, str]) -> None:
        """Lines of the journal that are new."""
        self.fingerprint = told["fingerprint"]
        self.measurements.append(told["measurements"])

    def files(self) -> dict[str, bytes]:
        """As they stand in a profile's folder; none if nothing was measured."""
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
    for told in _told(node, wanted, before):
        if "progress" in told:
            progress = Progress.model_validate(told["progress"])
            listener(progress.model_copy(update={"table": f"{folder.name}: {progress.table}"}))
        elif "journal" in told:
            kept.take(told["journal"])
        elif "error" in told:
            raise ProfileError(f"{node.name}: {told['error']['headline']}", told["error"]["lines"])
        elif "report" in told:
            report = ProfileReport.model_validate(told["report"])
        else:
            _keep(folder, told["files"])
    if report is None:
        raise ProfileError(f"{node.name}: it ended without a report")
    return report


def _told(node: Node, wanted: str, before: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    try:
        for reference in node.task(on_node.measure, num_returns="streaming").remote(wanted, before):
            yield ray.get(reference)
    except RayError as error:
        raise _lost(node.name, error, "start again to go on with what was measured") from None


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    """Copy what was measured elsewhere; here it is the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _link(first: Node, second: Node) -> LinkReport:
    """Seconds of buffers sent from one node to the other, one process on each."""
    port = _got(
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
    told, _ = (
        _got(side, node.name, seconds=WAIT_SECONDS + LINK_SECONDS)
        for side, node in zip(sides, (first, second), strict=True)
    )
    measured = {
        LINK_BYTES[each["number"]]: each["measurement"]["seconds"]
        for each in told
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


def _pools(kinds: dict[str, list[Node]], reports: Sequence[KindReport]) -> list[dict[str, Any]]:
    """The cluster as a job spec has it; a kind that was not measured has no profile."""
    by_name = {report.name: report for report in reports}
    pools = []
    for name, nodes in kinds.items():
        memory = nodes[0].found["host_memory_bytes"]
        pool: dict[str, Any] = {
            "name": name,
            "gpu": nodes[0].found["identity"]["device_type"],
            "num_nodes": len(nodes),
            "gpus_per_node": min(nodes[0].reserved, nodes[0].found["count"]),
            "host_memory_bytes": memory // GIB * GIB or memory,
        }
        report = by_name.get(name)
        if report is not None:
            pool["profile"] = report.profile.folder
            if report.link is not None:
                pool["inter_node_bytes_per_second"] = round(report.link.bytes_per_second)
        pools.append(pool)
    return pools
