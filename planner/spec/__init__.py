"""The job spec: one pydantic model for HTTP, command line and files."""

from automap.planner.spec.algorithm import AlgorithmName, GivenAlgorithm
from automap.planner.spec.base import NAME_PATTERN, Name, PositiveFloat, PositiveInt, SpecModel
from automap.planner.spec.cluster import MAX_NODES, ClusterSpec, PoolSpec
from automap.planner.spec.constraints import ConstraintsSpec, ParallelismConstraint
from automap.planner.spec.dataflow import CallKind, DataflowCallSpec, DataflowEdgeSpec, DataflowSpec
from automap.planner.spec.job import (
    JobSpec,
    job_spec_json_schema,
    need_spec,
    streaming_field,
    tail_field,
)
from automap.planner.spec.lengths import LengthSpec
from automap.planner.spec.models import LoraSpec, ModelSpec, RemoteSpec
from automap.planner.spec.search import (
    MOST_STALENESS,
    Objective,
    SearchSpec,
    StrategyName,
    TargetName,
    with_version,
)
from automap.planner.spec.workload import (
    EIGHT_BIT_STACKS,
    EIGHT_BIT_WEIGHT_STACKS,
    MEMORY_SETTINGS,
    RolloutEngine,
    SelectiveRecompute,
    TrainingStack,
    WorkloadSpec,
)

__all__ = [
    "EIGHT_BIT_STACKS",
    "EIGHT_BIT_WEIGHT_STACKS",
    "MAX_NODES",
    "MEMORY_SETTINGS",
    "MOST_STALENESS",
    "NAME_PATTERN",
    "AlgorithmName",
    "CallKind",
    "ClusterSpec",
    "ConstraintsSpec",
    "DataflowCallSpec",
    "DataflowEdgeSpec",
    "DataflowSpec",
    "GivenAlgorithm",
    "JobSpec",
    "LengthSpec",
    "LoraSpec",
    "ModelSpec",
    "Name",
    "Objective",
    "ParallelismConstraint",
    "PoolSpec",
    "PositiveFloat",
    "PositiveInt",
    "RemoteSpec",
    "RolloutEngine",
    "SearchSpec",
    "SelectiveRecompute",
    "SpecModel",
    "StrategyName",
    "TargetName",
    "TrainingStack",
    "WorkloadSpec",
    "job_spec_json_schema",
    "need_spec",
    "streaming_field",
    "tail_field",
    "with_version",
]
