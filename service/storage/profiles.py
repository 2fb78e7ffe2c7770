"""Stored profiles: kept, compared, and put into the pools of specs and where planners find them."""

import math
from collections.abc import Sequence
from statistics import median, quantiles
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from automap.planner import catalogue
from automap.planner.errors import SpecError
from automap.planner.profiles import SHIPPED
from automap.planner.spec import ClusterSpec, PoolSpec
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.schemas.base import Page
from automap.service.schemas.profiles import (
    IdentityDifference,
    Measurement,
    ProfileDifference,
    ProfileQuery,
    ProfileRecord,
    ProfileSummary,
    ShapeDifference,
    StorableProfile,
    TableDifference,
)
from automap.service.storage.clusters import found_cluster
from automap.service.storage.database import StoredText
from automap.service.storage.paging import page_of
from automap.service.storage.tables import JobRow, ProfileRow

FURTHEST = 10
REMEDY = (
    "name the version of a stored profile of this GPU type, "
    f"or {SHIPPED!r}; automap profile --server stores one"
)


def add(
    session: Session, new: StorableProfile, *, job_id: UUID | None = None
) -> tuple[ProfileSummary, bool]:
    """Store a profile; False: the very same was stored before, and is the answer.

    `job_id`: the job that measured it.
    """
    row = ProfileRow(
        version=new.version,
        device_type=new.device_type,
        shapes=new.shapes,
        fingerprint=new.fingerprint,
        corrections=None if new.corrections is None else new.corrections.model_dump(mode="json"),
        measurements=StoredText(new.measurements),
        is_default=False,
        job_id=job_id,
    )
    is_new = True
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        row, is_new = find_row(session, new.version), False
    if new.make_default:
        _make_default(session, row)
    return _summary(row), is_new


def find(session: Session, version: str) -> ProfileRecord:
    """The profile of this version.

    Raises:
        NotFoundError: there is none.
    """
    row = find_row(session, version)
    measurements = [Measurement.model_validate(each) for each in row.measurements]
    cluster = None if row.job_id is None else _cluster_found(session, row.job_id)
    return ProfileRecord(**dict(_summary(row)), cluster=cluster, measurements=measurements)


def _cluster_found(session: Session, job_id: UUID) -> ClusterSpec | None:
    row = session.get(JobRow, job_id)
    return None if row is None else found_cluster(row)


def list_profiles(session: Session, query: ProfileQuery) -> Page[ProfileSummary]:
    """One page of profiles, newest first."""
    statement = select(ProfileRow).options(defer(ProfileRow.measurements, raiseload=True))
    if query.device_type is not None:
        statement = statement.where(ProfileRow.device_type == query.device_type)
    rows, next_cursor = page_of(session, statement, ProfileRow, query)
    return Page(items=[_summary(row) for row in rows], next_cursor=next_cursor)


def remove(session: Session, version: str) -> None:
    """Forget a profile. Plans made with it keep their prices; nothing is priced with it any more.

    Raises:
        NotFoundError: there is none.
    """
    statement = delete(ProfileRow).where(ProfileRow.version == version).returning(ProfileRow.id)
    if session.execute(statement).one_or_none() is None:
        raise NotFoundError("profile", version)


def set_default(session: Session, version: str, *, to: bool) -> ProfileSummary:
    """Make it the default of its device type, or let that have none.

    Raises:
        NotFoundError: there is no such profile.
        ConflictError: other requests change the default at the same time.
    """
    row = find_row(session, version)
    if to:
        _make_default(session, row)
    else:
        row.is_default = False
    return _summary(row)


def _make_default(session: Session, row: ProfileRow) -> None:
    """Replace the default of its device type, also where another request does so meanwhile.

    That one may make a profile the default which was not there when this one looked; it is there
    the second time.
    """
    for _ in range(2):
        try:
            with session.begin_nested():
                _replace_default(session, row)
        except IntegrityError:
            continue
        return
    raise ConflictError(f"Other requests change the default profile of {row.device_type}")


def _replace_default(session: Session, row: ProfileRow) -> None:
    of_type = ProfileRow.device_type == row.device_type
    # Locked in one order, so that two requests never wait for each other.
    locked = select(ProfileRow.id).where(of_type).order_by(ProfileRow.id).with_for_update()
    session.execute(locked).all()
    others = update(ProfileRow).where(of_type, ProfileRow.id != row.id)
    session.execute(others.values(is_default=False))
    row.is_default = True
    session.flush()


def difference(session: Session, first: str, second: str) -> ProfileDifference:
    """What the second has measured against the first.

    Raises:
        NotFoundError: there is no such profile, for either.
    """
    one, other = find(session, first), find(session, second)
    left = {each.shape: each for each in one.measurements}
    right = {each.shape: each for each in other.measurements}
    shapes = [
        ShapeDifference(
            table=each.table,
            key=each.key,
            first_seconds=each.seconds,
            second_seconds=right[shape].seconds,
            ratio=right[shape].seconds / each.seconds,
        )
        for shape, each in left.items()
        if shape in right and each.seconds > 0 < right[shape].seconds
    ]
    shapes.sort(key=lambda each: -abs(math.log(each.ratio)))
    tables = dict.fromkeys([*one.shapes, *other.shapes])
    return ProfileDifference(
        first=first,
        second=second,
        identity=_identity_differences(one, other),
        tables=[
            _table_difference(
                table,
                [each.ratio for each in shapes if each.table == table],
                first=one.shapes.get(table, 0),
                second=other.shapes.get(table, 0),
            )
            for table in tables
        ],
        furthest=shapes[:FURTHEST],
    )


def _identity_differences(one: ProfileSummary, other: ProfileSummary) -> list[IdentityDifference]:
    left, right = one.fingerprint["identity"], other.fingerprint["identity"]
    assert isinstance(left, dict)
    assert isinstance(right, dict)
    return [
        IdentityDifference(name=name, first=left.get(name), second=right.get(name))
        for name in dict.fromkeys([*left, *right])
        if left.get(name) != right.get(name)
    ]


def _table_difference(
    table: str, ratios: Sequence[float], *, first: int, second: int
) -> TableDifference:
    tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else list(ratios)
    return TableDifference(
        table=table,
        both=len(ratios),
        only_first=first - len(ratios),
        only_second=second - len(ratios),
        median_ratio=median(ratios) if ratios else None,
        p10_ratio=tenths[0] if tenths else None,
        p90_ratio=tenths[-1] if tenths else None,
    )


def checked_cluster(
    session: Session, cluster: ClusterSpec, *, field: str, with_defaults: bool
) -> ClusterSpec:
    """The cluster, its profiles those of stored versions, the defaults where a pool names none.

    Raises:
        SpecError: a pool names what is no stored profile, or one of another device type.
    """
    pools = [
        _checked_pool(session, pool, field=f"{field}.{number}", with_default=with_defaults)
        for number, pool in enumerate(cluster.pools)
    ]
    return ClusterSpec(pools=pools)


def _checked_pool(session: Session, pool: PoolSpec, *, field: str, with_default: bool) -> PoolSpec:
    if pool.profile == SHIPPED or (pool.profile is None and not with_default):
        return pool
    gpu = catalogue.gpu_type(pool.gpu, field=f"{field}.gpu").name
    columns = select(ProfileRow.version, ProfileRow.device_type)
    if pool.profile is None:
        found = columns.where(ProfileRow.device_type == gpu, ProfileRow.is_default)
        default = session.execute(found).one_or_none()
        return pool if default is None else pool.model_copy(update={"profile": default.version})
    named = session.execute(columns.where(ProfileRow.version == pool.profile)).one_or_none()
    if named is None:
        message = (
            f"no profile {pool.profile[:100]!r} is stored; a folder is read by the command line"
        )
        raise SpecError(f"{field}.profile", message, remedy=REMEDY)
    if named.device_type != gpu:
        message = f"{pool.profile} was measured on {named.device_type}, the pool has {gpu}"
        raise SpecError(f"{field}.profile", message, remedy=REMEDY)
    return pool


def find_row(session: Session, version: str) -> ProfileRow:
    """The row of this version.

    Raises:
        NotFoundError: there is none.
    """
    row = session.scalars(select(ProfileRow).where(ProfileRow.version == version)).one_or_none()
    if row is None:
        raise NotFoundError("profile", version)
    return row


def _summary(row: ProfileRow) -> ProfileSummary:
    return ProfileSummary.model_validate(
        {name: getattr(row, name) for name in ProfileSummary.model_fields}
    )
