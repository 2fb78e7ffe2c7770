"""Hardware as the cost model reads it: types of GPU and node, and pools of nodes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from automap.planner.layout import IntArray


class GpuType(BaseModel):
    """A type of GPU: figures of one GPU in base units, from the data sheet that `source` names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    aliases: tuple[str, ...] = ()
    memory_bytes: Annotated[int, Field(gt=0)]
    """Device memory that the driver reports as total."""
    memory_bytes_per_second: Annotated[float, Field(gt=0)]
    bf16_flops_per_second: Annotated[float, Field(gt=0)]
    """Peak rate of dense bf16 products, without sparsity; of fp16 where there is no bf16."""
    fp8_flops_per_second: float | None = None
    fp4_flops_per_second: float | None = None
    """Peak rate of dense products of 4-bit operands with scales per block (nvfp4)."""
    fp32_flops_per_second: Annotated[float, Field(gt=0)]
    """Peak rate of a framework's fp32 matrix products (TF32 where it exists)."""
    generation: Literal[
        "volta",
        "ampere",
        "ada",
        "hopper",
        "blackwell",
        "blackwell-ultra",
        "cdna3",
        "cdna4",
        "none",
    ]
    """The vendor's architecture generation, by which instructions and kernels differ."""
    node: str
    """The node type that a pool of this GPU defaults to."""
    profile: str
    """The GPU whose shipped operator tables apply; its own name, or the nearest relative."""
    source: str

    @property
    def is_core(self) -> bool:
        """Whether it is a core of a processor, to run tiny models on where there is no GPU."""
        return self.generation == "none"

    @property
    def has_bf16(self) -> bool:
        """Whether tensor cores compute in bf16; before Ampere they know fp16 alone."""
        return self.generation != "volta"

    @property
    def is_assumed(self) -> bool:
        """Whether another vendor's GPU stands in for it, so that its speed is an assumption."""
        return self.generation in ("cdna3", "cdna4")

    @property
    def unpacks_four_bits(self) -> bool:
        """Whether engines have kernels that multiply 4-bit weights: on tensor cores with bf16."""
        return self.generation not in ("volta", "none")


class NodeType(BaseModel):
    """A type of node: what it has beside its GPUs, per node or per GPU as each name says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    gpus_per_node: Annotated[int, Field(gt=0)]
    nvlink_domain_gpus: Annotated[int, Field(gt=0)]
    """GPUs that reach one another at the intra-node speed; more than a node in NVL72 racks."""
    intra_node_bytes_per_second: Annotated[float, Field(gt=0)]
    peer_bytes_per_second: Annotated[float, Field(gt=0)] | None = None
    """Where every pair of GPUs has a link of its own: what one link carries, each way. None: any
    two reach one another at the intra-node speed."""
    inter_node_bytes_per_second: Annotated[float, Field(gt=0)]
    host_memory_bytes: Annotated[int, Field(gt=0)]
    host_link_bytes_per_second: Annotated[float, Field(gt=0)]
    price_per_gpu_hour: Annotated[float, Field(ge=0)]
    source: str


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of equal nodes; on the axis of all pools its GPUs are `first_gpu` and those after."""

    name: str
    gpu: GpuType
    num_nodes: int
    gpus_per_node: int
    first_gpu: int
    nvlink_domain_gpus: int
    intra_node_bytes_per_second: float
    inter_node_bytes_per_second: float
    host_memory_bytes: int
    host_link_bytes_per_second: float
    price_per_gpu_hour: float
    kept_free_gpus: int = 0
    peer_bytes_per_second: float | None = None
    """What the link between two GPUs of a node carries, where each pair has its own."""
    profile: Path | None = None
    """Folder of tables measured on this very hardware; None: those shipped for the GPU."""

    @property
    def num_gpus(self) -> int:
        """All GPUs of the pool, kept-free ones included."""
        return self.num_nodes * self.gpus_per_node

    def group_bytes_per_second(
        self, size: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64] | float:
        """What each GPU of a group of such a size sends inside a domain: all, or by its links."""
        if self.peer_bytes_per_second is None:
            return self.intra_node_bytes_per_second
        links = np.maximum(size - 1.0, 1.0) * self.peer_bytes_per_second
        return np.minimum(links, self.intra_node_bytes_per_second)

    @property
    def usable_gpus(self) -> int:
        """GPUs of the pool that a plan may use."""
        return self.num_gpus - self.kept_free_gpus

    def is_within_reach(
        self, size: int | IntArray, *, across_nodes: bool
    ) -> bool | npt.NDArray[np.bool_]:
        """True when tensor or expert groups of `size` stay in an NVLink domain, or need not.

        Ranges start at any node, so a domain of several nodes counts only when it holds the whole
        pool.
        """
        if across_nodes or self.num_gpus <= self.nvlink_domain_gpus:
            return size <= self.num_gpus
        return self.reach_gpus % size == 0

    @property
    def reach_gpus(self) -> int:
        """GPUs of the largest group that NVLink joins wherever a range begins."""
        if self.num_gpus <= self.nvlink_domain_gpus:
            return self.num_gpus
        return min(self.gpus_per_node, self.nvlink_domain_gpus)

    def is_whole_nodes_or_divides_one(self, size: int | IntArray) -> bool | npt.NDArray[np.bool_]:
        """Whether tensor groups of `size` fill whole nodes, or several fill one, without a rest."""
        return (self.gpus_per_node % size == 0) | (size % self.gpus_per_node == 0)
