"""How fast the service answers: reading a plan, while others post, its memory, its first answer.

    python -m benchmarks.service_reads [--rounds 5] [--seconds 3]

A real service on loopback with a new SQLite database, asked by this process over connections that
stay open. The same plan is read as it is stored and, as a baseline in the same run, by way of its
models, which is how a plan of another version is read. Figures are medians of rounds that alternate
between the two; quote them with the load of the machine, which is printed.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from automap.service.api.examples import PPO_SPEC
from tests.service.support.processes import processor_seconds

CLIENTS = (1, 16)
POSTING_ROUNDS = 3
SETTLING_SECONDS = 3.0
"""Until the planners are warm and idle again."""
STARTS = 5
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
"""A service keeps its compiled modules, as a package that pip installed has them from the start."""


@dataclass(frozen=True)
class Answers:
    """What a number of clients got within some seconds."""

    statuses: list[int]
    latencies: list[float]
    seconds: float
    processor_seconds: float = 0.0
    """Of the API, for all of them."""

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True)
class Service:
    """A process, its port and its database."""

    process: subprocess.Popen[bytes]
    port: int
    database: Path
    first_answer_seconds: float
    first_answer_processor_seconds: float

    def processor_seconds(self) -> float:
        """That the API has used."""
        return processor_seconds(self.process.pid)

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def service(folder: Path, *, url: str | None = None) -> Iterator[Service]:
    """A service with a new database, or that of the URL; the clock runs to its first answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    database = folder / "automap.db"
    settings = {
        "AUTOMAP_DATABASE_URL": url or f"sqlite:///{database}",
        "AUTOMAP_PROFILES_FOLDER": str(folder / "profiles"),
        "AUTOMAP_PORT": str(port),
        "AUTOMAP_MAX_WAITING_REQUESTS": "32",
    }
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "automap.service.cli.main", "serve"],
        env={**os.environ, **settings, **BYTECODE},
        stderr=subprocess.DEVNULL,
    )
    try:
        answered = asyncio.run(_until_ready(port))
        started = Service(process, port, database, answered - began, 0.0)
        yield replace(started, first_answer_processor_seconds=started.processor_seconds())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def _until_ready(port: int) -> float:
    while True:
        try:
            connection = await Connection.to(port)
            status, _ = await connection.ask("GET", "/v1/plans")
            await connection.close()
        except OSError:
            await asyncio.sleep(0.01)
        else:
            assert status == 200
            return time.perf_counter()


class Connection:
    """HTTP/1.1 over a connection that stays open, with next to no work on this side."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length: ")[2].split(b"\r")[0])
        return int(answer[9:12]), await self._reader.readexactly(length)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def read(port: int, path: str, *, clients: int, seconds: float) -> Answers:
    """Ask again and again, each client as soon as it has its answer."""
    statuses: list[int] = []
    latencies: list[float] = []
    began = time.perf_counter()

    async def client() -> None:
        connection = await Connection.to(port)
        while (asked := time.perf_counter()) - began < seconds:
            status, _ = await connection.ask("GET", path)
            latencies.append(time.perf_counter() - asked)
            statuses.append(status)
        await connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return Answers(statuses, latencies, time.perf_counter() - began)


async def post(port: int, clients: int) -> list[tuple[int, str]]:
    """Post a plan from each client at once; its status and id."""

    async def client(number: int) -> tuple[int, str]:
        connection = await Connection.to(port)
        spec = json.dumps({**PPO_SPEC, "name": f"client-{number}"}).encode()
        status, body = await connection.ask("POST", "/v1/plans", spec)
        await connection.close()
        return status, str(json.loads(body).get("id"))

    return list(await asyncio.gather(*(client(number) for number in range(clients))))


async def read_while_others_post(port: int, path: str, clients: int) -> tuple[Answers, list[int]]:
    """One client reads for as long as the others wait for their plans."""
    posting = asyncio.create_task(post(port, clients))
    statuses: list[int] = []
    latencies: list[float] = []
    connection = await Connection.to(port)
    began = time.perf_counter()
    while not posting.done():
        asked = time.perf_counter()
        status, _ = await connection.ask("GET", path)
        latencies.append(time.perf_counter() - asked)
        statuses.append(status)
    await connection.close()
    posted = [status for status, _ in await posting]
    return Answers(statuses, latencies, time.perf_counter() - began), posted


def forget_the_form(database: Path, plan_id: str) -> None:
    """Let a plan be one that another version has written, which is read by way of its models."""
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE plans SET written_as = NULL WHERE id = ?", (plan_id.replace("-", ""),)
        )
    connection.close()


def starts() -> tuple[float, float]:
    """Seconds from a fresh database to the first answer, by the clock and of the processor."""
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)):
        pass  # what has no bytecode yet is compiled
    found, processor = [], []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as started:
            found.append(started.first_answer_seconds)
            processor.append(started.first_answer_processor_seconds)
    return median(found), median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    seconds, processor = starts()
    print(
        f"fresh database to first answer: {seconds:.2f} s, processor {processor:.2f} s "
        f"(median of {STARTS} starts)"
    )
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        posted = asyncio.run(post(running.port, 2))
        assert [status for status, _ in posted] == [201, 201]
        stored, parsed = (f"/v1/plans/{plan_id}" for _, plan_id in posted)
        forget_the_form(running.database, posted[1][1])
        for clients in CLIENTS:
            _compare(running, {"stored": stored, "parsed": parsed}, clients, given)
        _post(running, stored, given)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


def _compare(
    running: Service, paths: dict[str, str], clients: int, given: argparse.Namespace
) -> None:
    rounds: dict[str, list[Answers]] = {name: [] for name in paths}
    for _ in range(given.rounds):
        for name, path in paths.items():
            before = running.processor_seconds()
            found = asyncio.run(read(running.port, path, clients=clients, seconds=given.seconds))
            assert set(found.statuses) == {200}
            used = running.processor_seconds() - before
            rounds[name].append(replace(found, processor_seconds=used))
    for name, known in rounds.items():
        print(
            f"reading a plan, {clients:2} clients, {name}: "
            f"{median(each.per_second for each in known):5.0f} requests/s, "
            f"median {1e3 * median(each.percentile(0.5) for each in known):5.1f} ms, "
            f"p99 {1e3 * median(each.percentile(0.99) for each in known):5.1f} ms, "
            f"processor {1e3 * median(_processor_seconds(each) for each in known):.2f} ms"
        )


def _processor_seconds(answers: Answers) -> float:
    """For one of them: what it takes however busy others keep the machine."""
    return answers.processor_seconds / len(answers.latencies)


def _post(running: Service, path: str, given: argparse.Namespace) -> None:
    alone, meanwhile, posted = [], [], []
    for _ in range(POSTING_ROUNDS):
        alone.append(asyncio.run(read(running.port, path, clients=1, seconds=given.seconds)))
        during, statuses = asyncio.run(read_while_others_post(running.port, path, 16))
        meanwhile.append(during)
        posted += statuses
        time.sleep(SETTLING_SECONDS)
    p99, p99_alone = (
        median(each.percentile(0.99) for each in answers) for answers in (meanwhile, alone)
    )
    print(
        f"16 clients post: {posted.count(201)} of {len(posted)} answered 201; reads of another "
        f"meanwhile: p99 {1e3 * p99:.1f} ms, alone {1e3 * p99_alone:.1f} ms, {p99 / p99_alone:.1f} "
        f"times ({sum(len(each.latencies) for each in meanwhile)} reads)"
    )
    print(f"resident memory of the API after that: {running.resident_bytes() / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
