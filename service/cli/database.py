"""`automap db`: what an operator does to the database of a service."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
import typer
from rich.text import Text
from sqlalchemy.exc import SQLAlchemyError

from automap import migrations
from automap.migrations import text_index
from automap.service.cli import replaced_rows
from automap.service.cli.options.runs import (
    BackupArguments,
    CheckArguments,
    DowngradeArguments,
    RestoreArguments,
    UpgradeArguments,
)
from automap.service.cli.serving import database_url_from, need_database, unusable_database
from automap.service.cli.terminal import console, formats
from automap.service.cli.terminal.failures import BadInputError, ReportedError, need_valid
from automap.service.storage import backups, checking
from automap.service.storage.backups import BackupError, Head
from automap.service.storage.database import Database

BASE = "base"


def run_upgrade(given: UpgradeArguments) -> None:
    """Migrate up to a revision, and say from where."""
    if given.revision is not None:
        need_valid("--revision", [given.revision], migrations.revisions())
    with _database(given.database_url, new=True) as database:
        before = _revision(database)
        migrations.upgrade(database.engine, given.revision or "head")
        text_index.make(database.engine)
        after = _revision(database)
    _say(f"at revision {after} already" if before == after else f"revision {before} → {after}")


def run_downgrade(given: DowngradeArguments) -> None:
    """Say what an older revision has no room for, ask, and migrate down."""
    need_valid("REVISION", [given.revision], [BASE, *migrations.revisions()])
    with _database(given.database_url) as database:
        before = _revision(database)
        for line in _losses(database, given.revision):
            _say(line)
        if not given.yes:
            _ask(f"Take the database from revision {before} to {given.revision}?")
        migrations.downgrade(database.engine, given.revision)
    _say(f"revision {before} → {given.revision}")


def run_backup(given: BackupArguments) -> None:
    """Write a backup, and say what is in it."""
    with _database(given.database_url) as database:
        counts = backups.back_up(database, Path(given.file))
    _say(f"{given.file}: {_listed(counts)}; {Path(given.file).stat().st_size} bytes")


def run_restore(given: RestoreArguments) -> None:
    """Restore a backup, and say what was in it; ask before anything goes for it."""
    with _database(given.database_url, new=True) as database:
        if given.replace:
            _agree_to_replace(database, backups.head_of(Path(given.file)), yes=given.yes)
        head, counts = backups.restore(Path(given.file), database, replace=given.replace)
        text_index.make(database.engine)
    upgraded = "" if head.revision == migrations.head_revision() else f", from {head.revision}"
    _say(
        f"restored {_listed(counts)}, as of {head.created_at:%Y-%m-%d %H:%M} UTC"
        f", now at revision {migrations.head_revision()}{upgraded}"
    )


def run_check(given: CheckArguments) -> None:
    """Print what was found; a fault ends the command with 1."""
    with _database(given.database_url) as database:
        found = checking.check(database)
    faults = [each for each in found if each.weight == "fault"]
    if given.json:
        console.write_json(json.dumps([each.model_dump() for each in found], indent=2))
    else:
        for each in found:
            _say(f"{each.weight}: {each.what}" + (f" ({each.count})" if each.count > 1 else ""))
        if not faults:
            _say("the database is sound")
    if faults:
        kinds = "1 kind" if len(faults) == 1 else f"{len(faults)} kinds"
        raise ReportedError(f"the database has {kinds} of fault")


@contextmanager
def _database(url: str | None, *, new: bool = False) -> Iterator[Database]:
    """The database of the settings; `new`: it is made where there is none.

    Raises:
        BadInputError: there is none, or what was asked for cannot be done with it.
        ServerError: it cannot be used.
    """
    known = database_url_from(url)
    if not new:
        need_database(known)
    database = Database(known)
    try:
        yield database
    except BackupError as error:
        raise BadInputError(str(error)) from None
    except SQLAlchemyError as error:
        raise unusable_database(error) from error
    finally:
        database.dispose()


def _agree_to_replace(database: Database, head: Head, *, yes: bool) -> None:
    replaced_rows.refuse_while_held(database)
    lines = list(replaced_rows.replaced(database, head))
    for line in lines:
        _say(line)
    if lines and not yes:
        _ask("Replace what is in the database by the backup?")


def _losses(database: Database, revision: str) -> Iterator[str]:
    """What an older revision has no room for, tried on a copy."""
    with backups.copied(database) as copy:
        before = _contents(copy)
        migrations.downgrade(copy.engine, revision)
        after = _contents(copy)
    lost = False
    for table, (rows, columns) in before.items():
        if table not in after:
            lines = [f"the table {table} goes, with {rows} rows"] if rows else []
        else:
            kept_rows, kept_columns = after[table]
            lines = [f"{table}: {rows - kept_rows} rows go"] if kept_rows < rows else []
            lines += [
                f"{table}: the column {name} goes, with {count} values"
                for name, count in columns.items()
                if name not in kept_columns and count
            ]
        lost = lost or bool(lines)
        yield from lines
    if not lost:
        yield "nothing would be lost"


def _contents(database: Database) -> dict[str, tuple[int, Counter[str]]]:
    """Rows of each table, and how many of them have a value in each column."""
    found = {}
    with database.reading() as session:
        inspector = sa.inspect(session.connection())
        for name, rows in backups.counted(database).items():
            columns = [column["name"] for column in inspector.get_columns(name)]
            counts = [sa.func.count(sa.column(column)) for column in columns]
            values = session.execute(sa.select(*counts).select_from(sa.table(name))).one()
            found[name] = (rows, Counter(dict(zip(columns, values, strict=True))))
    return found


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise BadInputError("--yes: nobody is there to be asked", ["say --yes if this is meant"])
    if not typer.confirm(question):
        raise ReportedError("nothing was changed")


def _revision(database: Database) -> str:
    with database.reading() as session:
        return migrations.current_revision(session.connection()) or BASE


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {table}" for table, count in counts.items() if count) or "no rows"


def _say(text: str) -> None:
    console.stdout_console().print(Text(formats.printable(text)), soft_wrap=True)
