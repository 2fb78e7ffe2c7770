"""The job spec: one pydantic model for HTTP, command line and files."""

from planner.spec.base import Name, PositiveFloat, PositiveInt, SpecModel
from planner.spec.cluster import MAX_NODES, ClusterSpec, PoolSpec
from planner.spec.constraints import ConstraintsSpec, ParallelismConstraint
from planner.spec.dataflow import CallKind, DataflowCallSpec, DataflowEdgeSpec, DataflowSpec
from planner.spec.job import AlgorithmName, JobSpec, job_spec_json_schema, unrunnable_field
from planner.spec.models import UNSTATED_CONCURRENCY, LoraSpec, ModelSpec, RemoteSpec
from planner.spec.search import Objective, SearchSpec, StrategyName
from planner.spec.workload import EIGHT_BIT_STACKS, RolloutEngine, TrainingStack, WorkloadSpec

__all__ = [
    "EIGHT_BIT_STACKS",
    "MAX_NODES",
    "UNSTATED_CONCURRENCY",
    "AlgorithmName",
    "CallKind",
    "ClusterSpec",
    "ConstraintsSpec",
    "DataflowCallSpec",
    "DataflowEdgeSpec",
    "DataflowSpec",
    "JobSpec",
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
    "SpecModel",
    "StrategyName",
    "TrainingStack",
    "WorkloadSpec",
    "job_spec_json_schema",
    "unrunnable_field",
]
