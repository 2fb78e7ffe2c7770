"""Named clusters that specs may refer to, and the clusters that measurements have found."""

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from automap.planner.catalogue import gpu_type
from automap.planner.spec import ClusterSpec
from automap.service.errors.domain import ConflictError, NotFoundError
from automap.service.schemas.base import Page, PageQuery
from automap.service.schemas.catalogue import ClusterRecord, NewCluster
from automap.service.storage.paging import page_of
from automap.service.storage.tables import ClusterRow, JobRow


def add(session: Session, new: NewCluster) -> ClusterRecord:
    """Store a cluster.

    Raises:
        ConflictError: its name is taken.
    """
    spec = ClusterSpec(pools=new.pools)
    row = ClusterRow(name=new.name, spec=spec.model_dump(mode="json"))
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        raise ConflictError(
            f"A cluster named {new.name} exists; delete it first, or choose another name"
        ) from None
    return _record(row)


def check_gpus(cluster: ClusterSpec) -> None:
    """Refuse a cluster with a GPU that the catalogue does not know.

    Raises:
        SpecError: the first such pool.
    """
    for index, pool in enumerate(cluster.pools):
        gpu_type(pool.gpu, field=f"pools.{index}.gpu")


def find(session: Session, name: str) -> ClusterRecord:
    """The cluster of this name.

    Raises:
        NotFoundError: there is none.
    """
    row = session.scalars(select(ClusterRow).where(ClusterRow.name == name)).one_or_none()
    if row is None:
        raise NotFoundError("cluster", name)
    return _record(row)


def names(session: Session, limit: int = 20) -> list[str]:
    """Some names of stored clusters, to suggest."""
    return list(session.scalars(select(ClusterRow.name).order_by(ClusterRow.name).limit(limit)))


def list_clusters(session: Session, query: PageQuery) -> Page[ClusterRecord]:
    """One page of clusters, newest first."""
    rows, next_cursor = page_of(session, select(ClusterRow), ClusterRow, query)
    return Page(items=[_record(row) for row in rows], next_cursor=next_cursor)


def remove(session: Session, name: str) -> None:
    """Forget a cluster; plans made with it keep its definition.

    Raises:
        NotFoundError: there is none.
    """
    statement = delete(ClusterRow).where(ClusterRow.name == name).returning(ClusterRow.id)
    if session.execute(statement).one_or_none() is None:
        raise NotFoundError("cluster", name)


def _record(row: ClusterRow) -> ClusterRecord:
    spec = ClusterSpec.model_validate(row.spec)
    return ClusterRecord(name=row.name, created_at=row.created_at, pools=spec.pools)


def found_cluster(row: JobRow) -> ClusterSpec | None:
    """The cluster in the report of a job, each pool with the version that is stored of it."""
    pools: Any = ((row.report or {}).get("cluster") or {}).get("pools")  # type: ignore[union-attr]
    if not pools:
        return None
    stored: Any = row.measured["profiles"]
    versions = {name: each["version"] for name, each in stored.items()}
    return ClusterSpec.model_validate(
        {"pools": [{**pool, "profile": versions.get(pool["name"])} for pool in pools]}
    )
