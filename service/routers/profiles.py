from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from service import profiles
from service.bodies import Body, body_docs, body_of
from service.database import ReadSessionDep, SessionDep
from service.examples import PROFILE_EXAMPLES
from service.openapi import problem_responses, response_headers
from service.profile_schemas import (
    NewProfile,
    ProfileDifference,
    ProfileQuery,
    ProfileRecord,
    ProfileSummary,
    Version,
)
from service.schemas import Page

PATH = "/profiles"
router = APIRouter(prefix=PATH, tags=["profiles"])

ProfileBody = Annotated[
    Body[NewProfile],
    Depends(body_of(NewProfile, what="The profile", limit="max_profile_bytes")),
]


@router.post(
    "",
    status_code=201,
    summary="Store a measured profile",
    responses={
        200: {"model": ProfileSummary, "description": "The very same was stored before"},
        201: {"description": "Stored", "headers": response_headers("Location")},
        **problem_responses(400, 409, 413, 415, 422, 503),
    },
    openapi_extra=body_docs(NewProfile, PROFILE_EXAMPLES),
)
def create_profile(body: ProfileBody, session: SessionDep, response: Response) -> ProfileSummary:
    """Store what `automap profile` has measured; a pool may then say `profile: VERSION`."""
    summary, is_new = profiles.add(session, body.content)
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
def make_default(version: Version, session: SessionDep) -> ProfileSummary:
    """Price pools of its device type that name no profile with it, in place of the one before."""
    return profiles.set_default(session, version, to=True)


@router.delete(
    "/{version}/default",
    summary="Make a profile the default no more",
    responses=problem_responses(404, 422, 503),
)
def end_default(version: Version, session: SessionDep) -> ProfileSummary:
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
