"""The cluster of a job: pools of equal nodes."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from automap.planner.errors import FieldValueError
from automap.planner.spec.base import Name, PositiveFloat, PositiveInt, SpecModel

MAX_NODES = 100_000
"""Most nodes that a pool may have."""


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


class PoolSpec(SpecModel):
    """Equal nodes of one GPU type. What is left out defaults from the catalogue's node type."""

    name: Name
    gpu: str
    num_nodes: Annotated[int, Field(ge=1, le=MAX_NODES), OneNumber]
    gpus_per_node: Annotated[Annotated[int, Field(ge=1, le=128)] | None, OneNumber] = Field(
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
