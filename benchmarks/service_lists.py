"""How fast the service lists and finds plans where there are many.

    python -m benchmarks.service_lists [--plans 100000] [--requests 100] [--database sqlite]

A real service on loopback, over a connection that stays open, on SQLite and on PostgreSQL. Its
database is filled with copies of one plan that differ in what they are found by; the text of a plan
is made by the service's own function. Of each kind of request the median and the 99th percentile
are printed, and the processor time of the API for one, which a busy machine distorts less.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from sqlalchemy import insert, select, text

from automap.service.storage import descriptions
from automap.service.storage.database import Database, utc_now
from automap.service.storage.tables import PlanModelRow, PlanRow, PlanTextRow
from benchmarks.chaos.databases import Postgres, Sqlite, TestedDatabase, reachable
from benchmarks.service_reads import Answers, Connection, Service, post, service

TARGET_SECONDS = 0.1
BATCH = 1000
LARGEST_PAGE = 200
ALGORITHMS = ("ppo", "grpo", "rloo", "remax", "safe_rlhf")
MODELS = ("llama-2-7b", "llama-2-70b", "qwen2.5-7b", "qwen2.5-72b", "mixtral-8x7b")
WORDS = ("math", "code", "chat", "night", "baseline", "sweep", "long", "short", "agent", "tool")


@dataclass(frozen=True)
class Found:
    """A kind of request and what it took."""

    kind: str
    items: int
    answers: Answers

    def line(self) -> str:
        p99 = self.answers.percentile(0.99)
        cost = self.answers.processor_seconds / len(self.answers.latencies)
        return (
            f"{self.kind:38} {self.items:4} items, "
            f"median {1e3 * self.answers.percentile(0.5):6.1f} ms, p99 {1e3 * p99:6.1f} ms, "
            f"processor {1e3 * cost:6.1f} ms{'' if p99 <= TARGET_SECONDS else '  <-'}"
        )


def fill(database: Database, count: int) -> None:
    """Copies of the plan that is there, with names, owners, labels, models and figures drawn."""
    drawn = Random(0)
    with database.reading() as session:
        columns = list(PlanRow.__table__.columns)
        first = dict(zip((each.name for each in columns), session.execute(_plan()).one(), strict=1))
    now = utc_now()
    for begin in range(1, count, BATCH):
        rows = [_row(PlanRow(**first), drawn, number) for number in range(begin, begin + BATCH)]
        for number, row in enumerate(rows):
            row.created_at = now - timedelta(minutes=begin + number)
        with database.transaction() as session:
            session.execute(
                insert(PlanRow),
                [{each.name: getattr(row, each.name) for each in columns} for row in rows],
            )
            session.execute(
                insert(PlanModelRow),
                [
                    {"plan_id": row.id, "role": model.role, "architecture": model.architecture}
                    for row in rows
                    for model in row.models
                ],
            )
            texts = [{"plan_id": row.id, "text": descriptions.text_of_plan(row)} for row in rows]
            session.execute(insert(PlanTextRow), texts)


def _plan() -> Any:
    return select(*PlanRow.__table__.columns).limit(1)


def _row(row: PlanRow, drawn: Random, number: int) -> PlanRow:
    row.id = UUID(int=drawn.getrandbits(128), version=4)
    row.name = f"{drawn.choice(WORDS)} {drawn.choice(WORDS)} {number}"
    row.owner = f"person{drawn.randrange(20)}@example.com"
    row.labels = {"team": drawn.choice(WORDS), "run": str(number)}
    row.notes = " ".join(drawn.choices(WORDS, k=12))
    row.algorithm = drawn.choice(ALGORITHMS)
    row.iteration_seconds = drawn.lognormvariate(3, 1)
    row.price_per_iteration = drawn.lognormvariate(1, 1)
    row.gpus_used = 2 ** drawn.randrange(3, 12)
    if number % 20 == 0:
        row.status, row.plan, row.problem = "failed", None, {"type": "/problems/infeasible"}
    row.models = [
        PlanModelRow(role=role, architecture=drawn.choice(MODELS))
        for role in ("actor", "critic", "reference", "reward")
    ]
    return row


def kinds(count: int) -> dict[str, Callable[[int], dict[str, str]]]:
    """Queries by what they are, each with its number."""

    def number(index: int) -> str:
        return str(1 + index * 9973 % (count - 1))

    return {
        "newest": lambda i: {},
        "newest, 200": lambda i: {"limit": "200"},
        "by name": lambda i: {"sort": "name"},
        "by seconds": lambda i: {"sort": "iteration_seconds"},
        "dearest": lambda i: {"sort": "-price_per_iteration"},
        "by GPUs": lambda i: {"sort": "gpus_used"},
        "a word of half of them": lambda i: {"q": WORDS[i % 10]},
        "a word of all": lambda i: {"q": "example.com"},
        "three words": lambda i: {"q": f"{WORDS[i % 10]} {WORDS[i % 7]} qwen"},
        "a word of one": lambda i: {"q": number(i)},
        "a word of none": lambda i: {"q": f"nothing{i}"},
        "a letter": lambda i: {"q": "abcdefghijklmnopqrstuvwxyz"[i % 26]},
        "a word of half, by name": lambda i: {"q": WORDS[i % 10], "sort": "name"},
        "a word of none, by name": lambda i: {"q": f"nothing{i}", "sort": "name"},
        "label of a tenth": lambda i: {"label": f"team:{WORDS[i % 10]}"},
        "label that all have": lambda i: {"label": "team"},
        "label of one": lambda i: {"label": f"run:{number(i)}"},
        "label of none": lambda i: {"label": f"team:nothing{i}"},
        "label of a tenth, by seconds": lambda i: {
            "label": f"team:{WORDS[i % 10]}",
            "sort": "iteration_seconds",
        },
        "owner": lambda i: {"owner": f"person{i % 20}@example.com"},
        "owner without plans": lambda i: {"owner": f"nobody{i}"},
        "owner, by name": lambda i: {"owner": f"person{i % 20}@example.com", "sort": "name"},
        "owner and a word": lambda i: {
            "owner": f"person{i % 20}@example.com",
            "q": WORDS[i % 10],
        },
        "owner and a word of none": lambda i: {
            "owner": f"person{i % 20}@example.com",
            "q": "xyzzy",
        },
        "failed": lambda i: {"status": "failed"},
        "failed, by name": lambda i: {"status": "failed", "sort": "name"},
        "cancelled: none": lambda i: {"status": "cancelled"},
        "algorithm": lambda i: {"algorithm": ALGORITHMS[i % 5]},
        "algorithm of none": lambda i: {"algorithm": "reinforce_plus_plus"},
        "cluster of none": lambda i: {"cluster": "none"},
        "model": lambda i: {"model": MODELS[i % 5]},
        "model of none": lambda i: {"model": f"none{i}"},
        "model and a word, by name": lambda i: {
            "model": MODELS[i % 5],
            "q": WORDS[i % 10],
            "sort": "name",
        },
        "made before all": lambda i: {"created_before": "2001-01-01T00:00:00Z"},
    }


async def ask(port: int, queries: list[dict[str, str]]) -> tuple[Answers, int]:
    """Ask one after another; how many items the last answer had."""
    connection = await Connection.to(port)
    statuses, latencies, items = [], [], 0
    began = time.perf_counter()
    for query in queries:
        asked = time.perf_counter()
        status, body = await connection.ask("GET", f"/v1/plans?{urlencode(query)}")
        latencies.append(time.perf_counter() - asked)
        statuses.append(status)
        assert status == 200, body
        items = len(json.loads(body)["items"])
    await connection.close()
    return Answers(statuses, latencies, time.perf_counter() - began), items


async def deep_cursor(port: int, query: dict[str, str], pages: int) -> dict[str, str]:
    """The query with the cursor after so many of the largest pages."""
    connection = await Connection.to(port)
    asked = {**query, "limit": str(LARGEST_PAGE)}
    for _ in range(pages):
        _, body = await connection.ask("GET", f"/v1/plans?{urlencode(asked)}")
        if (cursor := json.loads(body)["next_cursor"]) is None:
            break
        asked["cursor"] = cursor
    await connection.close()
    return {name: value for name, value in asked.items() if name != "limit"}


def measured(running: Service, kind: str, queries: list[dict[str, str]]) -> Found:
    """Some requests first that do not count: a new service loads what it needs with them."""
    asyncio.run(ask(running.port, queries[:3]))
    before = running.processor_seconds()
    answers, items = asyncio.run(ask(running.port, queries))
    used = running.processor_seconds() - before
    return Found(kind, items, Answers(answers.statuses, answers.latencies, answers.seconds, used))


@contextmanager
def database_of(name: str, folder: Path, programs: Path | None) -> Iterator[TestedDatabase]:
    """A new database of this kind."""
    tested = Sqlite(folder) if name == "sqlite" else Postgres(folder, folder, programs)
    try:
        yield tested
    finally:
        tested.stop()


def run(name: str, given: argparse.Namespace) -> None:
    # Below /tmp itself, as PostgreSQL runs as another user who has to get there.
    with tempfile.TemporaryDirectory(prefix="automap-lists-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        with (
            database_of(name, folder, given.postgresql_programs) as tested,
            service(folder, url=tested.url) as running,
        ):
            assert asyncio.run(post(running.port, 1))[0][0] == 201
            began = time.perf_counter()
            with reachable(tested) as database:
                fill(database, given.plans)
                analyse = "VACUUM ANALYZE" if name == "postgresql" else "PRAGMA optimize"
                with database.engine.connect() as connection:
                    connection.execution_options(isolation_level="AUTOCOMMIT")
                    if name == "postgresql":  # what its autovacuum does within a minute
                        connection.execute(text(analyse))
            print(
                f"{tested.name}: {given.plans} plans, filled in {time.perf_counter() - began:.0f} s"
            )
            report(running, given)


def report(running: Service, given: argparse.Namespace) -> None:
    known = kinds(given.plans)
    worst = 0.0
    chosen = [kind for kind in known if given.only is None or given.only in kind]
    for kind in chosen:
        found = measured(running, kind, [known[kind](index) for index in range(given.requests)])
        print(found.line(), flush=True)
        worst = max(worst, found.answers.percentile(0.99))
    pages = 9 * given.plans // (10 * LARGEST_PAGE)
    for kind in ("newest", "by name", "a word of half of them", "label of a tenth"):
        if given.only is None:
            query = asyncio.run(deep_cursor(running.port, known[kind](0), pages))
            found = measured(running, f"{kind}, deep", [query] * given.requests)
            print(found.line(), flush=True)
            worst = max(worst, found.answers.percentile(0.99))
    print(f"largest p99: {1e3 * worst:.1f} ms, target at most {1e3 * TARGET_SECONDS:.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=100, help="of each kind")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="that one alone")
    parser.add_argument(
        "--postgresql-programs",
        type=Path,
        metavar="FOLDER",
        help="with postgres and initdb of another installation, which may have pg_trgm",
    )
    parser.add_argument("--only", help="kinds of requests with this in their name")
    given = parser.parse_args()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in ("sqlite", "postgresql"):
        if given.database in (None, name):
            run(name, given)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
