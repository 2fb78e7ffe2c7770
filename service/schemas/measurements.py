"""What the API sends and takes of measurements that the service starts: jobs of kind `profile`."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from automap.planner.catalogue import ModelArchitecture
from automap.planner.spec import ClusterSpec
from automap.profiler.settings import DeviceKind, MeasureSettings
from automap.service.schemas.base import ApiModel, ModelName
from automap.service.schemas.jobs import JobRecord, JobState, JobSummary
from automap.service.schemas.problems import Problem
from automap.service.schemas.profiles import Version


class Measure(ApiModel):
    """What to measure on the cluster that the workers run jobs on: one node of each kind."""

    models: Annotated[list[ModelName], Field(max_length=64)] = Field(
        default=[], description="Catalogue names; their shapes are measured first, then a grid"
    )
    architectures: Annotated[dict[ModelName, ModelArchitecture], Field(max_length=64)] = Field(
        default={}, description="Sizes of models that the catalogue does not have, likewise"
    )
    budget_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = Field(
        default=300.0, description="On each kind of node; kinds are measured side by side"
    )
    device: DeviceKind | None = Field(default=None, description="Null: GPUs where a node has any")
    ranks: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Most processes of a collective; null: one per device of a node"
    )
    strict: bool = Field(
        default=False, description="Refuse devices that others use, and end when others come"
    )
    make_default: bool = Field(
        default=False, description="Price pools of its device types with what was measured"
    )


class MeasureRequest(ApiModel):
    """A measurement to start, in place of a profile that was measured."""

    measure: Measure


class MeasureJobSettings(MeasureSettings):
    """What a job measures: the models resolved, and what becomes of the profiles."""

    make_default: bool = False


class TableProgress(ApiModel):
    """How far one table of one kind of node is."""

    table: str = Field(description="`POOL: TABLE`")
    done: int = Field(description="Shapes, those of earlier attempts among them")
    wanted: int


class MeasuredKind(ApiModel):
    """A profile that a job has measured and stored."""

    pool: str = Field(description="Of `cluster`")
    device_type: str
    version: Version
    nodes: list[str] = Field(description="Nodes of this kind")


class ProfileJobSummary(JobState):
    """A job that measures the cluster, without its documents: what a list shows."""

    kind: Literal["profile"] = "profile"
    seconds: float = Field(description="Measured so far, of `budget_seconds`")
    budget_seconds: float
    profiles: list[MeasuredKind] = Field(description="Stored so far")


class ProfileJobRecord(ProfileJobSummary):
    """A job that measures the cluster: how far it is, what was found and stored, or the problem."""

    settings: MeasureJobSettings
    tables: list[TableProgress]
    submission_id: str | None = Field(default=None, description="Its name in Ray, last attempt")
    output: str | None = Field(default=None, description="Folder on the cluster, all attempts")
    cluster: ClusterSpec | None = Field(
        default=None, description="As it was found, each pool with its profile: for a job spec"
    )
    report: dict[str, JsonValue] | None = Field(
        default=None, description="The profiler's ClusterReport"
    )
    problem: Problem | None = None
    waits_for: str | None = Field(
        default=None, description="What a queued job waits for; null: it waits no more"
    )


AnyJobSummary = Annotated[JobSummary | ProfileJobSummary, Field(discriminator="kind")]
AnyJobRecord = Annotated[JobRecord | ProfileJobRecord, Field(discriminator="kind")]
