from typing import Annotated

from fastapi import Depends, Query, Response

from automap.service.api.bodies import body_docs_of_either
from automap.service.api.dependencies import KeyDep, ReadSessionDep, ServiceDep, SessionDep
from automap.service.api.examples import PROFILE_EXAMPLES
from automap.service.api.openapi import problem_responses, response_headers
from automap.service.api.profile_bodies import Asked, profile_body
from automap.service.api.routing import router_for_keys
from automap.service.schemas.base import Body, Page
from automap.service.schemas.measurements import MeasureRequest, ProfileJobRecord
from automap.service.schemas.profiles import (
    NewProfile,
    ProfileDifference,
    ProfileQuery,
    ProfileRecord,
    ProfileSummary,
    Version,
)
from automap.service.storage import profiles
from automap.service.use_cases import measurements

PATH = "/v1/profiles"
router = router_for_keys("profiles", PATH)

ProfileBody = Annotated[Asked, Depends(profile_body)]


@router.post(
    "",
    status_code=201,
    summary="Measure the cluster, or store a measured profile",
    responses={
        200: {"model": ProfileSummary, "description": "The very same was stored before"},
        201: {"description": "Stored", "headers": response_headers("Location")},
        202: {
            "model": ProfileJobRecord,
            "description": "A job that measures is queued; poll the Location",
            "headers": response_headers("Location", "Retry-After"),
        },
        **problem_responses(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=body_docs_of_either([MeasureRequest, NewProfile], PROFILE_EXAMPLES),
)
def create_profile(
    body: ProfileBody, service: ServiceDep, response: Response, idempotency_key: KeyDep
) -> ProfileSummary | ProfileJobRecord:
    """Have the cluster measured, or store what `automap profile` has measured elsewhere.

    With `measure` a job is queued (202) that measures one node of each kind of the Ray cluster of
    the workers and stores a profile of each; follow it as any job. With `fingerprint` and
    `measurements` the profile is stored. A pool of a spec may then say `profile: VERSION`.
    """
    if isinstance(body, Body):
        record = measurements.post_measurement(service, body, key=idempotency_key)
        response.status_code = 202
        response.headers["Location"] = f"/v1/jobs/{record.id}"
        response.headers["Retry-After"] = "1"
        return record
    with service.database.transaction() as session:
        summary, is_new = profiles.add(session, body)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/profiles/{summary.version}"
    return summary


@router.get("", summary="List profiles", responses=problem_responses(422, 503))
def list_profiles(
    query: Annotated[ProfileQuery, Query()], session: ReadSessionDep
) -> Page[ProfileSummary]:
    """Stored profiles, newest first, page by page, without their measurements."""
    return profiles.list_profiles(session, query)


@router.get("/{version}", summary="Get a profile", responses=problem_responses(404, 422, 503))
def get_profile(version: Version, session: ReadSessionDep) -> ProfileRecord:
    """A stored profile with all that was measured."""
    return profiles.find(session, version)


@router.get(
    "/{version}/diff/{other}",
    summary="Compare two profiles",
    responses=problem_responses(404, 422, 503),
)
def diff_profiles(version: Version, other: Version, session: ReadSessionDep) -> ProfileDifference:
    """How the other differs: device and software, and the seconds of shapes that both have."""
    return profiles.difference(session, version, other)


@router.put(
    "/{version}/default",
    summary="Make a profile the default",
    responses=problem_responses(404, 409, 422, 503),
)
def set_default_profile(version: Version, session: SessionDep) -> ProfileSummary:
    """Price pools of its device type that name no profile with it, in place of the one before."""
    return profiles.set_default(session, version, to=True)


@router.delete(
    "/{version}/default",
    summary="Make a profile the default no more",
    responses=problem_responses(404, 422, 503),
)
def unset_default_profile(version: Version, session: SessionDep) -> ProfileSummary:
    """Pools that name no profile are priced with the shipped tables again."""
    return profiles.set_default(session, version, to=False)


@router.delete(
    "/{version}",
    status_code=204,
    response_class=Response,
    summary="Delete a profile",
    responses=problem_responses(404, 422, 503),
)
def delete_profile(version: Version, session: SessionDep) -> None:
    """Forget a profile. Plans made with it stay, but cannot be priced anew."""
    profiles.remove(session, version)
