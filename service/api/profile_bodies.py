"""The body of `POST /profiles`: of all that requests send, this alone may be large.

To read thirty megabytes takes many seconds of Python and a gigabyte, and here it would be a thread
that keeps all others waiting. So what is large is read by a process of its own (this module, as
one), which answers with the row to store; both go when it is done. One is read after another.
"""

import gc
import json
import resource
import subprocess
import sys
from typing import Annotated, Any

import anyio
from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from automap.service.api.bodies import RawBody, body_as, loaded, media_of_body, raw_body
from automap.service.api.refusals import BodyTooLargeError, InvalidDocumentError
from automap.service.environment import passed_on
from automap.service.errors.domain import InvalidInputError, PlannerCrashedError
from automap.service.errors.fields import FieldError
from automap.service.schemas.base import Body
from automap.service.schemas.documents import MAX_VALUES, Media, number_of_values
from automap.service.schemas.measurements import MeasureRequest
from automap.service.schemas.profiles import NewProfile, StorableProfile

Asked = Body[MeasureRequest] | StorableProfile
WHAT = "The profile"
_SMALL_BYTES = 2**18
_SMALL_VALUES = 10_000
"""Up to so much is read in a few hundredths of a second."""
_MEMORY_BYTES = 2**32
_SECONDS = 300.0
_ONE_AT_A_TIME = anyio.CapacityLimiter(1)
"""Requests that wait for it hold none of the threads that answer others."""


async def profile_body(request: Request, raw: Annotated[RawBody, Depends(raw_body)]) -> Asked:
    """What the body asks for: a profile to store, or the cluster to be measured."""
    most = request.app.state.settings.max_profile_bytes
    if len(raw.text) <= _SMALL_BYTES and number_of_values(raw.text) <= _SMALL_VALUES:
        return await run_in_threadpool(lambda: _read(request, raw, most))
    small = request.app.state.settings.max_body_bytes
    return await anyio.to_thread.run_sync(
        lambda: _read_apart(raw, most, small), limiter=_ONE_AT_A_TIME
    )


def _read(request: Request | None, raw: RawBody, max_bytes: int) -> Asked:
    data = loaded(request, raw, max_bytes=max_bytes, max_values=MAX_VALUES)
    if isinstance(data, dict) and "measure" in data:
        return body_as(MeasureRequest, data, what=WHAT)
    return body_as(NewProfile, data, what=WHAT).content.storable()


def _read_apart(raw: RawBody, max_bytes: int, small_bytes: int) -> StorableProfile:
    """A profile as another process reads it.

    Raises:
        InvalidDocumentError, InvalidInputError: as `_read`.
        BodyTooLargeError: it asks for a measurement, which takes no more than other requests.
        PlannerCrashedError: the process was ended, or took too long.
    """
    media = media_of_body(raw)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, media, str(max_bytes)],
            input=raw.text,
            stdout=subprocess.PIPE,
            env=passed_on(),
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PlannerCrashedError(f"a profile was not read within {_SECONDS:g} s") from None
    if done.returncode:
        raise PlannerCrashedError(f"the process that read a profile ended by {done.returncode}")
    head, _, measurements = done.stdout.partition(b"\n")
    found: dict[str, Any] = json.loads(head)
    if "profile" in found:
        return StorableProfile(**found["profile"], measurements=measurements.decode())
    if "message" in found:
        raise InvalidDocumentError(found["message"], line=found["line"])
    if "errors" in found:
        errors = [FieldError.model_validate(each) for each in found["errors"]]
        raise InvalidInputError(errors, what=WHAT)
    raise BodyTooLargeError(small_bytes)


def _answer(text: bytes, media: Media, max_bytes: int) -> tuple[dict[str, object], str]:
    """What the process says of a body: a line of JSON, and the measurements to store."""
    try:
        found = _read(None, RawBody(text, media), max_bytes)
    except InvalidDocumentError as error:
        line = error.errors[0].field.removeprefix("line ") if error.errors else None
        return {"message": str(error), "line": line and int(line)}, ""
    except InvalidInputError as error:
        return {"errors": [each.model_dump(mode="json") for each in error.errors]}, ""
    if isinstance(found, Body):
        return {"is_measurement": True}, ""
    return {"profile": found.model_dump(mode="json", exclude={"measurements"})}, found.measurements


def main() -> None:
    """Read the body from standard input."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.disable()  # what there is, is needed to the end
    media: Media = "yaml" if sys.argv[1] == "yaml" else "json"
    head, measurements = _answer(sys.stdin.buffer.read(), media, int(sys.argv[2]))
    sys.stdout.write(f"{json.dumps(head)}\n{measurements}")


if __name__ == "__main__":
    main()
