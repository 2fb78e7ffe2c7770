"""Stored profiles as folders of files, where planner processes look for them by version."""

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from automap.executor.private_folders import make_private
from automap.planner import catalogue
from automap.planner.errors import SpecError
from automap.planner.profiles import FILE as CORRECTIONS
from automap.planner.profiles import FINGERPRINT, MEASUREMENTS, SHIPPED
from automap.planner.spec import ClusterSpec, JobSpec
from automap.service.storage.database import Database
from automap.service.storage.profiles import REMEDY, find_row
from automap.service.storage.tables import ProfileRow


def materialise(database: Database, folder: Path, spec: JobSpec) -> None:
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
            _materialise(session, folder, version)


def materialise_for_remedies(database: Database, folder: Path, spec: JobSpec) -> dict[str, str]:
    """The default profiles of all GPU types, where remedies of an impossible job may need them."""
    if not spec.search.explain_infeasible:
        return {}
    return materialise_defaults(database, folder, list(catalogue.gpu_types()))


def materialise_defaults(database: Database, folder: Path, gpus: Sequence[str]) -> dict[str, str]:
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
            _materialise(session, folder, version)
    return versions


def _materialise(session: Session, folder: Path, version: str) -> None:
    if not (folder / version).is_dir():
        _write(folder, find_row(session, version))


def _is_stored(session: Session, version: str) -> bool:
    found = select(ProfileRow.id).where(ProfileRow.version == version)
    return session.execute(found).one_or_none() is not None


def _write(folder: Path, row: ProfileRow) -> None:
    """Write the folder as a whole or not at all; another server may do so at the same time."""
    version = row.version
    make_private(folder)
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
