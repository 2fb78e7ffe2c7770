"""Answers that a client may have already: ETag and If-None-Match."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Header
from fastapi.responses import Response

KnownHeader = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="ETags of answers that the client has: if one is this one, 304 without a body",
        max_length=2000,
    ),
]
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "It is what the client has, by `If-None-Match`"}
}
"""For the `responses` of a route."""


def unless_known(
    body: bytes, known: str | None, *, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON with its ETag, or 304 if the client has just this."""
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    # Always to be asked for again: a plan may be run, or deleted, and the service upgraded.
    all_headers = {"ETag": tag, "Cache-Control": "private, no-cache", **(headers or {})}
    if _names(known, tag):
        return Response(status_code=304, headers=all_headers)
    return Response(body, media_type="application/json", headers=all_headers)


def _names(known: str | None, tag: str) -> bool:
    tags = [each.strip().removeprefix("W/") for each in (known or "").split(",")]
    return tag in tags or tags == ["*"]
