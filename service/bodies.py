"""Request bodies: JSON or YAML, bounded, checked, and shown as such in the OpenAPI document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import problems
from service.documents import DocumentError, Media, load_document

MEDIA: dict[str, Media] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
}
_DRAINED_BODIES = 32
"""A body up to so many times the limit is read to its end, so that its sender sees our answer."""

Content = TypeVar("Content", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Body(Generic[Content]):
    """A body that is what was asked for, and its data as they came."""

    content: Content
    data: object


@dataclass(frozen=True, slots=True)
class _RawBody:
    text: bytes
    media: Media | None
    """None: there is no body."""


async def _raw_body(request: Request) -> _RawBody:
    if "content-type" not in request.headers and not await request.body():
        return _RawBody(b"", None)
    return _RawBody(media=_media(request), text=await request.body())


def _media(request: Request) -> Media:
    given = request.headers.get("content-type", "")
    name, _, parameters = given.partition(";")
    charset = parameters.strip().lower()
    encoding = request.headers.get("content-encoding", "identity").lower()
    media = MEDIA.get(name.strip().lower())
    if media is None or charset not in ("", "charset=utf-8", 'charset="utf-8"'):
        raise problems.unsupported_media_type(given)
    if encoding != "identity":
        raise problems.unsupported_media_type(f"{given} with Content-Encoding: {encoding}")
    return media


def body_of(
    content: type[Content],
    *,
    what: str,
    limit: str = "max_body_bytes",
    optional: bool = False,
) -> Callable[..., Body[Content]]:
    """A dependency that reads the body as `content`; `what` names it in problems.

    `limit` names the setting that bounds it. An `optional` one that is not there stands for one
    without fields.
    """

    def read(request: Request, raw: Annotated[_RawBody, Depends(_raw_body)]) -> Body[Content]:
        if raw.media is None and not optional:
            raise problems.unsupported_media_type("")
        if raw.media is None:
            return Body(content=content(), data={})
        try:
            max_bytes = getattr(request.app.state.settings, limit)
            data = load_document(raw.text, media=raw.media, max_bytes=max_bytes)
        except DocumentError as error:
            raise problems.invalid_document(error.message, line=error.line) from None
        try:
            return Body(content=content.model_validate(data), data=data)
        except ValidationError as error:
            raise problems.invalid_fields(error, data, what=what) from None

    return read


def body_docs(
    content: type[BaseModel], examples: dict[str, dict[str, Any]], *, optional: bool = False
) -> dict[str, Any]:
    """What a route passes as `openapi_extra`: the body's schema and examples in both media."""
    shown = {"schema": {"$ref": f"#/components/schemas/{content.__name__}"}, "examples": examples}
    return {
        "requestBody": {
            "required": not optional,
            "content": {"application/json": shown, "application/yaml": shown},
        }
    }


class BodyLimit:
    """Answers 413 to a body above the limit, whether its length is declared or not.

    `larger`: limits of paths that take more.
    """

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, larger: Mapping[str, int] | None = None
    ) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.larger = dict(larger or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.larger.get(scope["path"], self.max_body_bytes)
        if self._declared_bytes(scope) > limit:
            await self._refuse(scope, receive, send, limit)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                await self._drain(receive, message, limit)
                raise problems.body_too_large(limit)
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
        error = problems.body_too_large(limit)
        await problems.problem_response(error.problem, error.headers)(scope, receive, send)

    async def _drain(self, receive: Receive, message: Message, limit: int) -> None:
        drained = 0
        while message.get("more_body") and drained <= _DRAINED_BODIES * limit:
            message = await receive()
            drained += len(message.get("body", b""))
