"""The page at /, and the API's description at /docs: files that `make page` has built, from memory.

They need nothing from elsewhere, so both work without a network. Where they are not built, a plain
page says how.
"""

import gzip
import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

BUILT = Path(__file__).parents[1] / "page"
"""Where `make page` puts the assets, and a wheel has them."""
HASHED = "assets/"
"""Files below it have a hash of their content in their names: they never change."""
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_IMMUTABLE = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"
_NOT_BUILT = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Automap</title></head>
<body>
<h1>Automap</h1>
<p>This service answers at <code>/v1</code>; <a href="/openapi.json">/openapi.json</a> says how.</p>
<p>The page is not built here: run <code>make page</code>, which needs Node 20 or newer, and start
the service again.</p>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bytes | None
    """Gzipped; none where that is hardly smaller."""
    media_type: str
    tag: str
    cache: str


def install(app: FastAPI, built: Path = BUILT) -> None:
    """Serve the page that is in a folder, or say that it is not built."""
    files = _files(built)
    entries = {"/": "index.html", "/docs": "docs.html"}
    for path, name in entries.items():
        _serve(app, path, files.get(name))
    for name, file in files.items():
        if name not in entries.values():
            _serve(app, f"/{name}", file)


def _serve(app: FastAPI, path: str, file: _File | None) -> None:
    # A plain function of a file in memory: nothing to wait for, so it needs no thread.
    async def answer(request: Request) -> Response:
        if file is None:
            return HTMLResponse(_NOT_BUILT, headers=_headers(_ASK_AGAIN))
        return _response(file, request.headers)

    app.add_route(path, answer, methods=["GET"], include_in_schema=False)


def _response(file: _File, asked: Mapping[str, str]) -> Response:
    headers = {**_headers(file.cache), "ETag": file.tag, "Vary": "Accept-Encoding"}
    known = [tag.strip().removeprefix("W/") for tag in asked.get("if-none-match", "").split(",")]
    if file.tag.removeprefix("W/") in known:
        return Response(status_code=304, headers=headers)
    content = file.content
    if file.packed is not None and _takes_gzip(asked.get("accept-encoding", "")):
        content = file.packed
        headers["Content-Encoding"] = "gzip"
    return Response(content, media_type=file.media_type, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _headers(cache: str) -> dict[str, str]:
    return {"Cache-Control": cache, "Content-Security-Policy": CONTENT_POLICY}


def _files(built: Path) -> dict[str, _File]:
    """The built files by their paths; read once, as they are small and asked for by everybody."""
    if not (built / "index.html").is_file():
        return {}
    paths = [path for path in sorted(built.rglob("*")) if path.is_file() and path.suffix != ".gz"]
    return {path.relative_to(built).as_posix(): _file(path, built) for path in paths}


def _file(path: Path, built: Path) -> _File:
    content = path.read_bytes()
    packed = path.with_name(f"{path.name}.gz")
    media_type, _ = mimetypes.guess_type(path.name)
    if path.suffix == ".js":  # some systems know it by an older name, which browsers refuse
        media_type = "text/javascript"
    return _File(
        content=content,
        packed=_checked(packed, content) if packed.is_file() else None,
        media_type=media_type or "application/octet-stream",
        # Weak: the packed content is another sequence of bytes under the same tag.
        tag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
        cache=_IMMUTABLE if path.relative_to(built).as_posix().startswith(HASHED) else _ASK_AGAIN,
    )


def _checked(packed: Path, content: bytes) -> bytes | None:
    """The packed bytes, if they are those of this content and not of an earlier build."""
    data = packed.read_bytes()
    return data if gzip.decompress(data) == content else None
