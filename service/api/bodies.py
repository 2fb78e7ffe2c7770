"""Request bodies: JSON or YAML, bounded, checked, and shown as such in the OpenAPI document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from automap.service.api.error_responses import error_response
from automap.service.api.other_documents import body_errors
from automap.service.api.refusals import (
    BodyTooLargeError,
    InvalidDocumentError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from automap.service.errors.domain import InvalidInputError
from automap.service.schemas.base import Body, Content
from automap.service.schemas.documents import DocumentError, Media, load_document

MEDIA: dict[str, Media] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
}
MERGE_PATCH = "application/merge-patch+json"
"""What RFC 7396 calls the body of a PATCH, which may be any of the others as well."""
_DRAINED_BODIES = 32
"""A body up to so many times the limit is read to its end, so that its sender sees our answer."""
MAX_BODY_VALUES = 10_000
"""A megabyte could hold hundreds of thousands, each of them wrong; that many are read in a few
hundredths of a second."""


@dataclass(frozen=True, slots=True)
class RawBody:
    text: bytes
    media: Media | None
    """The kind of document; None: there is no body."""


async def raw_body(request: Request) -> RawBody:
    if "content-type" not in request.headers and not await request.body():
        return RawBody(b"", None)
    return RawBody(media=_media(request), text=await request.body())


def _media(request: Request) -> Media:
    given = request.headers.get("content-type", "")
    name, _, parameters = given.partition(";")
    charset = parameters.strip().lower()
    encoding = request.headers.get("content-encoding", "identity").lower()
    media = MEDIA.get(name.strip().lower())
    if request.method == "PATCH" and name.strip().lower() == MERGE_PATCH:
        media = "json"
    if media is None or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise UnsupportedMediaTypeError(given)
    if encoding != "identity":
        raise UnsupportedMediaTypeError(f"{given} with Content-Encoding: {encoding}")
    return media


def body_of(
    content: type[Content],
    *,
    what: str,
    optional: bool = False,
) -> Callable[..., Body[Content]]:
    """A dependency that reads the body as `content`; `what` names it in problems.

    An `optional` one that is not there, or empty, stands for one without fields.
    """

    def read(request: Request, raw: Annotated[RawBody, Depends(raw_body)]) -> Body[Content]:
        if optional and not raw.text.strip():
            return Body(content=content(), data={})
        most = request.app.state.settings.max_body_bytes
        data = loaded(request, raw, max_bytes=most, max_values=MAX_BODY_VALUES)
        return body_as(content, data, what=what)

    return read


def loaded(request: Request | None, raw: RawBody, *, max_bytes: int, max_values: int) -> object:
    """The data of a body; the request keeps them for what is said of it.

    Raises:
        UnsupportedMediaTypeError: there is no body.
        InvalidDocumentError: it cannot be read.
    """
    media = media_of_body(raw)
    try:
        data = load_document(raw.text, media=media, max_bytes=max_bytes, max_values=max_values)
    except DocumentError as error:
        other = "; send YAML as application/yaml" if error.message.startswith("not JSON") else ""
        raise InvalidDocumentError(error.message + other, line=error.line) from None
    if request is not None:
        request.state.data = data  # for the response to an error that names a field of it
    return data


def media_of_body(raw: RawBody) -> Media:
    """The kind of document that a body is.

    Raises:
        UnsupportedMediaTypeError: there is no body.
    """
    if raw.media is None:
        raise UnsupportedMediaTypeError("")
    return raw.media


def body_as(content: type[Content], data: object, *, what: str) -> Body[Content]:
    """The data as `content`.

    Raises:
        InvalidInputError: what is wrong with them.
    """
    try:
        return Body(content=content.model_validate(data), data=data)
    except ValidationError as error:
        raise InvalidInputError(body_errors(error, data, content), what=what) from None


def body_docs(
    content: type[BaseModel], examples: dict[str, dict[str, Any]], *, optional: bool = False
) -> dict[str, Any]:
    """What a route passes as `openapi_extra`: the body's schema and examples in both media."""
    reference = {"$ref": f"#/components/schemas/{content.__name__}"}
    return _docs(reference, examples, required=not optional)


def patch_docs(content: type[BaseModel], examples: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a route of merge patches passes as `openapi_extra`."""
    docs = body_docs(content, examples)
    media = docs["requestBody"]["content"]
    media[MERGE_PATCH] = media["application/json"]
    return docs


def body_docs_of_either(
    contents: Sequence[type[BaseModel]], examples: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What a route passes as `openapi_extra` where its body is one of several."""
    references = [{"$ref": f"#/components/schemas/{content.__name__}"} for content in contents]
    return _docs({"oneOf": references}, examples, required=True)


def _docs(
    schema: dict[str, Any], examples: dict[str, dict[str, Any]], *, required: bool
) -> dict[str, Any]:
    shown = {"schema": schema, "examples": examples}
    return {
        "requestBody": {
            "required": required,
            "content": {"application/json": shown, "application/yaml": shown},
        }
    }


class BodyLimit:
    """Answers 413 to a body above the limit, declared or not, and 408 to one that does not come.

    `larger`: limits of paths that take more.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        larger: Mapping[str, int] | None = None,
        seconds: float,
    ) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.larger = dict(larger or {})
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.larger.get(scope["path"], self.max_body_bytes)
        if self._declared_bytes(scope) > limit:
            await self._refuse(scope, receive, send, limit)
            return
        received = 0
        is_whole = False
        deadline = anyio.current_time() + self.seconds

        async def counted() -> Message:
            nonlocal received, is_whole
            if is_whole:  # what comes now is that the client leaves
                return await receive()
            with anyio.move_on_after(deadline - anyio.current_time()) as waiting:
                message = await receive()
            if waiting.cancelled_caught:
                is_whole = True
                raise RequestTimeoutError(self.seconds)
            is_whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > limit:
                await self._drain(receive, message, limit)
                raise BodyTooLargeError(limit)
            return message

        await self.app(scope, counted, send)

    @staticmethod
    def _declared_bytes(scope: Scope) -> int:
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and len(value) < 20:
                return int(value)
        return 0

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        await self._drain(receive, {"more_body": True}, limit)
        error = BodyTooLargeError(limit)
        await error_response(error)(scope, receive, send)

    async def _drain(self, receive: Receive, message: Message, limit: int) -> None:
        with anyio.move_on_after(self.seconds):
            await self._drain_at_most(receive, message, _DRAINED_BODIES * limit)

    @staticmethod
    async def _drain_at_most(receive: Receive, message: Message, limit: int) -> None:
        drained = 0
        while message.get("more_body") and drained <= limit:
            message = await receive()
            drained += len(message.get("body", b""))
