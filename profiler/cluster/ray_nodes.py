"""The nodes of a Ray cluster: found, looked at, and asked to do something with their devices."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, NodeDiedError, RayError, WorkerCrashedError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from automap.executor.run.ray_address import knock
from automap.profiler.cluster import on_node
from automap.profiler.errors import NodeLostError, ProfileError
from automap.profiler.settings import DeviceKind

WAIT_SECONDS = 120.0
"""For a node whose devices others use, and for its libraries to be imported."""
_LOST = (NodeDiedError, WorkerCrashedError)


def connect(address: str | None) -> None:
    """Join the cluster.

    Raises:
        ProfileError: there is none.
    """
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
    """Inside, Ray may set signal handlers of its own; at the end those from before are put back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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
        wanted = "device" if kind is None else f"{kind} device"
        raise ProfileError(
            f"no node of the {len(alive)} that Ray knows has a {wanted} to measure",
            ["give --device cpu, or start the nodes with their GPUs"],
        )
    found: list[Node] = []
    failures: list[ProfileError] = []
    deadline = time.monotonic() + WAIT_SECONDS
    for node, device, count, look in asked:
        name = node["NodeManagerHostname"]
        try:
            seen = got(look, name, seconds=max(deadline - time.monotonic(), 0.0))
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
            failures[0].headline, [*failures[0].lines, *map(in_a_line, failures[1:])]
        )
    return found, [in_a_line(each) for each in failures]


def _held(function: Any, node: str, device: DeviceKind, count: int, **options: Any) -> Any:
    holding = {"num_gpus": count, "num_cpus": 0} if device == "cuda" else {"num_cpus": count}
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(
        scheduling_strategy=here, max_retries=0, **holding, **options
    )


def got(reference: Any, node: str, *, seconds: float) -> Any:
    """What a task of a node has returned.

    Raises:
        ProfileError: it was not begun or not done in time, it failed, or the node was lost.
    """
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
        raise lost(node, error) from None


def lost(node: str, error: RayError, *lines: str) -> ProfileError:
    """Ray's error, with the node it is about."""
    what = "was lost" if isinstance(error, _LOST) else (str(error).splitlines() or [""])[0]
    return NodeLostError(f"{node}: {what}", lines)


def in_a_line(error: ProfileError) -> str:
    """The error with all its lines."""
    return "; ".join([error.headline, *error.lines])
