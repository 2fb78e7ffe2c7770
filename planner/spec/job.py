"""The job spec itself: its parts in one document."""

from typing import Annotated, Any, Self, get_args

from pydantic import Field, model_validator

from automap.planner.errors import FieldValueError
from automap.planner.spec.algorithm import AlgorithmName, GivenAlgorithm
from automap.planner.spec.base import Name, SpecModel
from automap.planner.spec.cluster import GivenCluster
from automap.planner.spec.constraints import ConstraintsSpec
from automap.planner.spec.dataflow import DataflowSpec
from automap.planner.spec.models import ModelSpec
from automap.planner.spec.search import SearchSpec
from automap.planner.spec.workload import WorkloadSpec


class JobSpec(SpecModel):
    """Everything the planner needs to know about a job."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    algorithm: GivenAlgorithm | None = None
    dataflow: DataflowSpec | None = None
    models: Annotated[dict[Name, ModelSpec], Field(min_length=1, max_length=32)]
    workload: WorkloadSpec
    cluster: GivenCluster
    search: SearchSpec = SearchSpec()
    constraints: ConstraintsSpec = ConstraintsSpec()

    @model_validator(mode="after")
    def _algorithm_or_dataflow(self) -> Self:
        if (self.algorithm is None) == (self.dataflow is None):
            raise FieldValueError(
                "algorithm",
                "give either algorithm or dataflow, not both or neither",
                remedy=f"set it to one of {', '.join(get_args(AlgorithmName))}, or give a dataflow"
                if self.algorithm is None
                else "leave out one of the two",
            )
        return self


def need_spec(spec: JobSpec) -> None:
    """Refuse what is no spec, as a caller without types may give it.

    Raises:
        TypeError: it is none, but perhaps the document of one.
    """
    if not isinstance(spec, JobSpec):
        raise TypeError(
            f"the spec is a {type(spec).__name__}, not a JobSpec: "
            "JobSpec.model_validate(document) makes one of a document"
        )


def streaming_field(spec: JobSpec) -> str | None:
    """The field that lets calls begin before the generation that they read from ends, or None."""
    if spec.search.streaming:
        return "search.streaming"
    edges = [] if spec.dataflow is None else spec.dataflow.edges
    return next((f"dataflow.edges.{i}.streamed" for i, e in enumerate(edges) if e.streamed), None)


def tail_field(spec: JobSpec) -> str | None:
    """The field that lets a generation's last responses go on otherwise laid out; None: none."""
    for name in ("generation_tail", "generation_tensor_schedule"):
        if getattr(spec.search, name):
            return f"search.{name}"
    return None


def job_spec_json_schema() -> dict[str, Any]:
    """The published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
