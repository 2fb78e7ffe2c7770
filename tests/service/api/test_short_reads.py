"""Short reads: on the event loop from a file, in a thread where that would wait."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from automap.service.api.short_reads import ShortReads
from automap.service.errors.domain import NotFoundError
from automap.service.storage.database import Database


def number(reads: Connection | Session) -> tuple[int, int]:
    """What is stored, and the thread that read it."""
    found = reads.execute(text("SELECT number FROM numbers")).scalar_one()
    return found, threading.get_ident()


def stored(path: Path) -> Database:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
        connection.execute("INSERT INTO numbers VALUES (7)")
    connection.close()
    return Database(f"sqlite:///{path}")


def test_a_file_is_read_on_the_event_loop(tmp_path: Path) -> None:
    database = stored(tmp_path / "a.db")
    assert asyncio.run(ShortReads(database).find(number, number)) == (7, threading.get_ident())
    # A writer that has begun keeps nobody from reading.
    with database.transaction() as session:
        session.execute(text("UPDATE numbers SET number = 8"))
        assert asyncio.run(ShortReads(database).find(number, number)) == (7, threading.get_ident())
    assert asyncio.run(ShortReads(database).find(number, number)) == (8, threading.get_ident())
    database.dispose()


def test_a_locked_file_is_waited_for_in_a_thread(tmp_path: Path) -> None:
    database = stored(tmp_path / "a.db")
    alone = sqlite3.connect(tmp_path / "a.db", check_same_thread=False, isolation_level=None)
    alone.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.5, alone.close)

    async def find_while_ticking() -> tuple[tuple[int, int], int]:
        finding = asyncio.create_task(ShortReads(database).find(number, number))
        release.start()
        ticks = 0
        while not finding.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return await finding, ticks

    (found, thread), ticks = asyncio.run(find_while_ticking())
    assert found == 7
    assert thread != threading.get_ident()
    assert ticks > 10, "the event loop went on"
    database.dispose()


def test_what_would_take_longer_is_read_in_a_thread(tmp_path: Path) -> None:
    database = stored(tmp_path / "a.db")
    found, thread = asyncio.run(ShortReads(database).find(lambda _: None, number))
    assert found == 7
    assert thread != threading.get_ident()
    database.dispose()


def test_what_the_function_raises_is_raised_once(tmp_path: Path) -> None:
    database, asked = stored(tmp_path / "a.db"), []

    def missing(reads: Connection | Session) -> None:
        asked.append(reads)
        raise NotFoundError("plan", "x")

    with pytest.raises(NotFoundError):
        asyncio.run(ShortReads(database).find(missing, missing))
    assert len(asked) == 1
    database.dispose()
