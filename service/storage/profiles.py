"""Stored profiles: kept, compared, and put into the pools of specs and where planners find them."""

import json
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from automap.planner import catalogue
from automap.planner.errors import SpecError
from automap.planner.profiles.corrections import FILE as CORRECTIONS
from automap.planner.profiles.folder import FINGERPRINT, SHIPPED
from automap.planner.profiles.tables import MEASUREMENTS
from automap.planner.spec import ClusterSpec, JobSpec, PoolSpec
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.schemas.base import Page
from automap.service.schemas.profiles import (
    IdentityDifference,
    Measurement,
    NewProfile,
    ProfileDifference,
    ProfileQuery,
    ProfileRecord,
    ProfileSummary,
    ShapeDifference,
    TableDifference,
)
from automap.service.storage.database import Database
from automap.service.storage.found_clusters import found_cluster
from automap.service.storage.paging import page_of
from automap.service.storage.tables import JobRow, ProfileRow

FURTHEST = 10
REMEDY = (
    "name the version of a stored profile of this GPU type, "
    f"or {SHIPPED!r}; automap profile --server stores one"
)


def add(
    session: Session, new: NewProfile, *, job_id: UUID | None = None
) -> tuple[ProfileSummary, bool]:
    """Store a profile; False: the very same was stored before, and is the answer.

    `job_id`: the job that measured it.
    """
    row = ProfileRow(
        version=new.version,
        device_type=str(new.identity["device_type"]),
        shapes=dict(Counter(each.table for each in new.measurements)),
        fingerprint=new.fingerprint,
        corrections=None if new.corrections is None else new.corrections.model_dump(mode="json"),
        measurements=[each.model_dump(mode="json", exclude_none=True) for each in new.measurements],
        is_default=False,
        job_id=job_id,
    )
    is_new = True
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        row, is_new = _row(session, new.version), False
    if new.make_default:
        _make_default(session, row)
    return _summary(row), is_new


def find(session: Session, version: str) -> ProfileRecord:
    """The profile of this version; a `not-found` problem if there is none."""
    row = _row(session, version)
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
    """Forget a profile; `not-found` if there is none.

    Plans made with it keep their prices, but nothing is priced with it any more.
    """
    statement = delete(ProfileRow).where(ProfileRow.version == version).returning(ProfileRow.id)
    if session.execute(statement).one_or_none() is None:
        raise NotFoundError("profile", version)


def set_default(session: Session, version: str, *, to: bool) -> ProfileSummary:
    """Make it the default of its device type, or let that have none."""
    row = _row(session, version)
    if to:
        _make_default(session, row)
    else:
        row.is_default = False
    return _summary(row)


def _make_default(session: Session, row: ProfileRow) -> None:
    """In place of the one before, also where another request does the same meanwhile.

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
    """What the second has measured against the first; `not-found` for either."""
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


def lay_out(database: Database, folder: Path, spec: JobSpec) -> None:
    """Write the profiles of a spec's pools to where planner processes look for their versions.

    Raises:
        SpecError: one was removed since the spec was checked.
    """
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    for number, pool in enumerate(pools):
        version = pool.profile
        if version is None or version == SHIPPED:
            continue
        with database.reading() as session:
            if not _is_stored(session, version):
                # Its folder may still be here: another server may have none.
                field = f"cluster.pools.{number}.profile"
                raise SpecError(field, f"profile {version} was removed", remedy=REMEDY)
            _lay_out(session, folder, version)


def lay_out_for_remedies(database: Database, folder: Path, spec: JobSpec) -> dict[str, str]:
    """The default profiles of all GPU types, where remedies of an impossible job may need them."""
    if not spec.search.explain_infeasible:
        return {}
    return lay_out_defaults(database, folder, list(catalogue.gpu_types()))


def lay_out_defaults(database: Database, folder: Path, gpus: Sequence[str]) -> dict[str, str]:
    """The default profiles of GPU types, written where planner processes look for them.

    Raises:
        SpecError: there is no such GPU type.
    """
    types = {catalogue.gpu_type(gpu, field="gpus").name for gpu in gpus}
    found = select(ProfileRow.device_type, ProfileRow.version).where(
        ProfileRow.device_type.in_(types), ProfileRow.is_default
    )
    with database.reading() as session:
        versions = {row.device_type: row.version for row in session.execute(found)}
        for version in versions.values():
            _lay_out(session, folder, version)
    return versions


def _lay_out(session: Session, folder: Path, version: str) -> None:
    if not (folder / version).is_dir():
        _write(folder, _row(session, version))


def _is_stored(session: Session, version: str) -> bool:
    found = select(ProfileRow.id).where(ProfileRow.version == version)
    return session.execute(found).one_or_none() is not None


def _write(folder: Path, row: ProfileRow) -> None:
    """As a whole or not at all; another server may do the same."""
    version = row.version
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=folder, prefix=f".{version}."))
    try:
        (unfinished / FINGERPRINT).write_text(json.dumps(row.fingerprint), encoding="utf-8")
        if row.corrections is not None:
            text = json.dumps(row.corrections)
            (unfinished / CORRECTIONS).write_text(text, encoding="utf-8")
        lines = "".join(json.dumps(each) + "\n" for each in row.measurements)
        (unfinished / MEASUREMENTS).write_text(lines, encoding="utf-8")
        os.rename(unfinished, folder / version)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not (folder / version).is_dir():
            raise


def _row(session: Session, version: str) -> ProfileRow:
    row = session.scalars(select(ProfileRow).where(ProfileRow.version == version)).one_or_none()
    if row is None:
        raise NotFoundError("profile", version)
    return row


def _summary(row: ProfileRow) -> ProfileSummary:
    return ProfileSummary.model_validate(
        {name: getattr(row, name) for name in ProfileSummary.model_fields}
    )
