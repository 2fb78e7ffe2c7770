import json
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import Response

from automap.planner import catalogue
from automap.planner.catalogue import CatalogueModel, GpuType, NodeType
from automap.planner.plan import placement_json_schema
from automap.planner.spec import job_spec_json_schema
from automap.service.api.conditional import NOT_MODIFIED, KnownHeader, unless_known
from automap.service.api.openapi import problem_responses
from automap.service.api.routing import router_for_keys
from automap.service.errors.domain import NotFoundError
from automap.service.schemas.catalogue import GpuDescription
from automap.service.storage import plan_records

router = router_for_keys("catalogue")


@router.get("/models", summary="List models")
def list_models() -> list[CatalogueModel]:
    """The models that a spec can name, with the sizes they stand for."""
    return list(catalogue.architectures().values())


@router.get("/models/{name:path}", summary="Get a model", responses=problem_responses(404, 422))
def get_model(name: str) -> CatalogueModel:
    """A model by its name or one of its aliases."""
    model = catalogue.architectures().get(plan_records.canonical_model(name))
    if model is None:
        raise NotFoundError("model", name[:100])
    return model


@router.get("/gpus", summary="List GPUs")
def list_gpus() -> list[GpuDescription]:
    """The GPU types that a pool can name, each with the node type that is assumed for it."""
    nodes = catalogue.node_types()
    return [_described(gpu, nodes[gpu.node]) for gpu in catalogue.gpu_types().values()]


def _described(gpu: GpuType, node: NodeType) -> GpuDescription:
    return GpuDescription(gpu=gpu, default_node=node)


@cache  # making one takes tens of milliseconds, and it is the same as long as the process lives
def _document(schema: Callable[[], dict[str, Any]]) -> bytes:
    return json.dumps(schema(), ensure_ascii=False, separators=(",", ":")).encode()


@router.get(
    "/schemas/job-spec",
    summary="JSON Schema of a job spec",
    tags=["schemas"],
    response_model=dict[str, Any],
    responses=NOT_MODIFIED,
)
def get_job_spec_schema(if_none_match: KnownHeader = None) -> Response:
    """What `POST /plans` and the command line accept."""
    return unless_known(_document(job_spec_json_schema), if_none_match)


@router.get(
    "/schemas/placement",
    summary="JSON Schema of a placement",
    tags=["schemas"],
    response_model=dict[str, Any],
    responses=NOT_MODIFIED,
)
def get_placement_schema(if_none_match: KnownHeader = None) -> Response:
    """A plan without its seconds: what `POST /estimates` accepts."""
    return unless_known(_document(placement_json_schema), if_none_match)
