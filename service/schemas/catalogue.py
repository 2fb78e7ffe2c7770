"""What the API sends and takes of clusters and GPUs, and its answer to health checks."""

from datetime import datetime
from typing import Literal

from automap.planner.catalogue import GpuType, NodeType
from automap.planner.spec import ClusterSpec, Name
from automap.service.schemas.base import ApiModel


class NewCluster(ClusterSpec):
    """A cluster to store under a name that specs can use."""

    name: Name


class ClusterRecord(ClusterSpec):
    """A stored cluster."""

    name: str
    created_at: datetime


class GpuDescription(ApiModel):
    """A GPU type, and the node type that a pool of it defaults to."""

    gpu: GpuType
    default_node: NodeType


class Health(ApiModel):
    """The answer of the health checks."""

    status: Literal["ok"] = "ok"
