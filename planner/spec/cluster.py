"""The cluster of a job: pools of equal nodes."""

import re
from collections.abc import Mapping
from typing import Annotated, Self, TypeGuard

from pydantic import BeforeValidator, Field, model_validator

from automap.planner.catalogue import ANOTHER_GPU, gpu_type, node_type
from automap.planner.errors import FieldValueError, SpecError
from automap.planner.spec.base import NAME_PATTERN, Name, PositiveFloat, PositiveInt, SpecModel

MAX_NODES = 100_000
"""Most nodes that a pool may have."""
MAX_GPUS_PER_NODE = 128


def _one_number(given: object) -> object:
    """The value itself; a list is how people try to give nodes that differ."""
    if isinstance(given, (list, dict)):
        raise FieldValueError(
            "",
            "the nodes of a pool are equal, so this is one number",
            remedy="give nodes of another size as another pool of the same gpu",
        )
    return given


OneNumber = BeforeValidator(_one_number)


def _name_of_gpu(given: object) -> object:
    """The name: YAML takes that of an RTX 4090 for a number.

    A mapping is how people try to give the figures of a GPU.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    if isinstance(given, Mapping):
        raise FieldValueError(
            "",
            "is the name of a GPU type, whose figures are in the catalogue",
            remedy=f"name one that automap gpus lists; {ANOTHER_GPU}",
        )
    return given


def _sizes_by_num_gpus(pool: Mapping[str, object]) -> dict[str, int]:
    """What num_gpus says of num_nodes or gpus_per_node."""
    num_gpus, num_nodes, per_node = map(pool.get, ("num_gpus", "num_nodes", "gpus_per_node"))
    if not _is_count(num_gpus):
        raise FieldValueError(
            "num_gpus", "is how many GPUs the pool has", remedy="write a whole number, at least 1"
        )
    if not all(given is None or _is_count(given) for given in (num_nodes, per_node)):
        # These are told of by themselves, and a number that was not given is not missing.
        return {"num_nodes": 1} if num_nodes is None else {}
    if _is_count(num_nodes):
        share = _share(num_gpus, num_nodes, per_node)
        if per_node is None:
            _refuse_larger_nodes(num_gpus, num_nodes, pool.get("gpu"))
        return {"gpus_per_node": share}
    size = per_node if _is_count(per_node) else _gpus_per_node(pool.get("gpu"))
    nodes, left = divmod(num_gpus, size)
    if left or nodes > MAX_NODES:
        raise FieldValueError(
            "num_gpus",
            f"{num_gpus} GPUs do not fill nodes of {size}"
            if left
            else f"{num_gpus} GPUs are {nodes} nodes of {size}",
            remedy=(f"use a multiple of {size}" if left else f"use at most {MAX_NODES} nodes")
            + ", or give num_nodes and gpus_per_node"
            + (f": 1 and {num_gpus} if these are in one node" if num_gpus < size else ""),
        )
    return {"num_nodes": nodes}


def _share(num_gpus: int, num_nodes: int, per_node: object) -> int:
    """GPUs of each of so many nodes; `per_node` is what the spec says of them, if anything."""
    share, left = divmod(num_gpus, num_nodes)
    if left or share > MAX_GPUS_PER_NODE or per_node not in (None, share):
        nodes = "1 node" if num_nodes == 1 else f"{num_nodes} nodes"
        size = "" if per_node is None else f" of {per_node}"
        raise FieldValueError(
            "num_gpus",
            f"{num_gpus} GPUs are not those of {nodes}{size}",
            remedy="leave num_gpus out, and give num_nodes and gpus_per_node",
        )
    return share


def _refuse_larger_nodes(num_gpus: int, num_nodes: int, gpu: object) -> None:
    """Nodes with more GPUs than the catalogue's are said on purpose, by gpus_per_node."""
    try:
        size = _gpus_per_node(gpu)
    except FieldValueError:  # the GPU is told of by itself
        return
    share = num_gpus // num_nodes
    if share <= size:
        return
    nodes = "1 node" if num_nodes == 1 else f"{num_nodes} nodes"
    whole, left = divmod(num_gpus, size)
    remedy = f"use at most {num_nodes * size}" if left else f"write num_nodes: {whole}"
    raise FieldValueError(
        "num_gpus",
        f"{num_gpus} GPUs on {nodes} are {share} on each, and a node of {gpu} has {size}",
        remedy=f"{remedy}, or give gpus_per_node: {share} if your nodes have as many",
    )


def _gpus_per_node(gpu: object) -> int:
    """GPUs of the catalogue's node of that GPU type."""
    if not isinstance(gpu, str):
        raise FieldValueError(
            "gpu",
            "is missing, and says how many nodes num_gpus are",
            remedy="name the GPU type, for example h100",
        )
    try:
        return node_type(gpu_type(gpu).node).gpus_per_node
    except SpecError as error:
        raise FieldValueError("gpu", error.message, remedy=error.remedy) from None


def _is_count(given: object) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


class PoolSpec(SpecModel):
    """Equal nodes of one GPU type. What is left out defaults from the catalogue's node type."""

    name: Name = Field(default="gpus", description="What plans call it; pools have different names")
    gpu: Annotated[str, BeforeValidator(_name_of_gpu)]
    num_nodes: Annotated[int, Field(ge=1, le=MAX_NODES), OneNumber] = Field(
        description="Or num_gpus, all GPUs of the pool, where these fill nodes"
    )
    gpus_per_node: Annotated[
        Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)] | None, OneNumber
    ] = Field(
        default=None, description="Nodes of other sizes are pools of their own, of the same gpu"
    )
    price_per_gpu_hour: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None,
        description="US dollars per GPU and hour, or another currency for all pools: every price "
        "of a plan is in the same. Default: a list price of 2025",
    )
    nvlink_domain_gpus: PositiveInt | None = Field(
        default=None, description="GPUs joined by NVLink; may span nodes (72 in a GB200 rack)"
    )
    intra_node_bytes_per_second: PositiveFloat | None = Field(
        default=None,
        description="Bytes per second (450 GB/s are 450e9), per GPU and direction, inside the "
        "NVLink domain (or over PCIe)",
    )
    inter_node_bytes_per_second: PositiveFloat | None = Field(
        default=None,
        description="Bytes per second (25 GB/s are 25e9), per GPU and direction, across nodes",
    )
    host_memory_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = Field(
        default=None, description="Bytes per node"
    )
    host_link_bytes_per_second: PositiveFloat | None = Field(
        default=None, description="Bytes per second, host to GPU copies, per GPU and direction"
    )
    profile: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        default=None,
        description="Folder written by automap profile, whose measured times apply; over HTTP the "
        "version of a stored profile. Default: the service's default for the GPU type if it has "
        "one, else the shipped tables, which `shipped` asks for",
    )

    @model_validator(mode="before")
    @classmethod
    def _nodes_of_gpus(cls, given: object) -> object:
        """The pool as it is spelled without num_gpus, so that equal jobs are equal specs."""
        if not isinstance(given, Mapping) or "num_gpus" not in given:
            return given
        rest = {name: value for name, value in given.items() if name != "num_gpus"}
        return rest | _sizes_by_num_gpus(given)


class ClusterSpec(SpecModel):
    """One or more pools of GPUs."""

    pools: Annotated[list[PoolSpec], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        first: dict[str, int] = {}
        for index, pool in enumerate(self.pools):
            if pool.name in first:
                raise FieldValueError(
                    f"pools.{index}.name",
                    f"pools.{first[pool.name]} has this name already",
                    remedy="give every pool a name of its own",
                )
            first[pool.name] = index
        return self


def _pools_or_name(given: object) -> object:
    """The value itself, unless it is pools without the word: how people try to give a cluster."""
    if isinstance(given, str) and re.fullmatch(NAME_PATTERN, given):
        return given
    if isinstance(given, (str, int, float, list)) or (
        isinstance(given, Mapping) and "pools" not in given and "gpu" in given
    ):
        raise FieldValueError(
            "",
            "is pools of GPUs, or the name of a cluster that a service has stored",
            remedy="write {pools: [{name: a, gpu: h100, num_nodes: 8}]}",
        )
    return given


GivenCluster = Annotated[ClusterSpec | Name, BeforeValidator(_pools_or_name)]
"""A cluster, or the name of one."""
