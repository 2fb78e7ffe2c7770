"""What a profile says of itself while it is measured and at the end."""

from typing import Any

from pydantic import BaseModel, ConfigDict

DRIFT_SHARE = 0.1
"""Change of a reference product over the profile from which the clock counts as throttled."""


class ReportModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Progress(ReportModel):
    """How far a table is."""

    table: str
    done: int
    wanted: int
    seconds: float
    budget_seconds: float


class TableCoverage(ReportModel):
    """What of a table was measured, in this and earlier sessions."""

    table: str
    wanted: int
    measured: int
    failed: int
    samples: int
    rejected: int
    """Outliers and disturbed samples."""
    disturbed: int
    """Shapes that had hardly an undisturbed sample: their waiting was subtracted instead."""
    busy: int = 0
    """Shapes measured while others used the device."""
    throttled: int = 0
    """Shapes measured while its clock was slow."""
    median_interval: float | None
    """Half of the 95 % interval of a shape's median as a share of it, the median over shapes."""


class HeldOut(ReportModel):
    """How well shapes are predicted that were left out of a table."""

    table: str
    left_out: str
    """What was left out: a value of an axis, or whole configurations."""
    shapes: int
    median_error: float
    mean_error: float


class LayerError(ReportModel):
    """One layer measured end to end, against what its operators add up to."""

    framework: str
    recompute: str
    part: str
    """`forward`; or `training`: forward, backward, and the optimizer step of its weights."""
    precision: str
    num_sequences: int
    sequence_length: int
    sizes: dict[str, int]
    measured_seconds: float
    sum_seconds: float
    """Operators and host work: their sum, or on a GPU the longer of the two."""
    host_seconds: float
    priced_seconds: float
    """Seconds as plans are priced: the sum times the median ratio of the framework's layers."""
    sum_error: float
    price_error: float
    explanation: str
    """Why the error of the sum is large; empty where it is not."""


class Conditions(ReportModel):
    """The machine meanwhile."""

    load: float
    cores: int
    busy: bool
    """Others were at work when it began; `busy` of the tables says what they disturbed later."""
    drift: float
    """Relative slowdown of one product from the beginning to the end: 0.1 is 10 % slower."""
    throttled: bool
    others: list[str] = []
    """Who else was seen to use the device, some of them."""
    slowed: list[str] = []
    """What was seen to slow its clock down."""


class ProfileReport(ReportModel):
    """The end of a profile."""

    folder: str
    device: str
    """Type in the catalogue."""
    resumed: int
    """Shapes that were there before."""
    seconds: float
    budget_seconds: float
    tables: list[TableCoverage]
    held_out: list[HeldOut]
    layers: list[LayerError] = []
    conditions: Conditions


class LinkReport(ReportModel):
    """Between two nodes of a kind, one device of each: a buffer sent and received."""

    nodes: tuple[str, str]
    bytes_per_second: float
    """Rate of the largest buffer, in one direction."""
    seconds: float
    """Latency: what the smallest buffer takes."""
    largest_bytes: int


class KindReport(ReportModel):
    """Nodes that are alike: same device, driver, libraries, processor."""

    name: str
    """Name of the pool in cluster.yaml, and of the profile's folder."""
    nodes: list[str]
    profile: ProfileReport
    link: LinkReport | None
    """The measured link between nodes; None: there is one node, or it could not be measured."""
    remarks: list[str]


class ClusterReport(ReportModel):
    """The kinds of node of a Ray cluster."""

    folder: str
    cluster_file: str
    cluster: dict[str, Any]
    """The `cluster` of a job spec as measured; a file from before keeps what was changed in it."""
    kinds: list[KindReport]
    """The kinds of node that were measured."""
    failures: list[str] = []
    """Nodes and kinds that could not be, each named, and why."""
