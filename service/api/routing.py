"""Routers of the API, complete where they stand: an application takes their routes as they are."""

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute

from automap.service.api.auth import admit

PREFIX = "/v1"


def operation_id(route: APIRoute) -> str:
    """The name of an operation in generated clients: the function that answers it."""
    return route.name


def open_router(tag: str) -> APIRouter:
    """A router whose routes answer everybody, and have no version."""
    return APIRouter(tags=[tag], generate_unique_id_function=operation_id)


def router_for_keys(tag: str, prefix: str = PREFIX) -> APIRouter:
    """A router whose routes begin with a prefix and answer whoever `admit` lets pass.

    FastAPI's `include_router` would add both as well, but makes every route a second time, which
    takes longer than all else of making an application.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=[Depends(admit)],
        generate_unique_id_function=operation_id,
    )
