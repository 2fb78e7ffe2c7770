"""Jobs and plans under random faults, and what came of them: `make chaos`.

Real processes on a real database: two APIs with their planner children, two workers, clients that
post with idempotency keys and try again, and a fault after the other, drawn from a seed. Ray is
stood in for, unless `--ray` asks for a real one with tiny runs. Exits 1 if anything was lost, done
twice or left over.
"""

import argparse
import contextlib
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from sqlalchemy.exc import SQLAlchemyError

from automap.service.storage.database import Database
from benchmarks.chaos import leftovers
from benchmarks.chaos.accounts import Held, Observer, audit, overlaps, unfinished
from benchmarks.chaos.clients import Clients
from benchmarks.chaos.databases import reachable
from benchmarks.chaos.faults import FAULTS, Fault
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.processes import adopt_orphans
from benchmarks.chaos.stack import Options, Stack

RECOVERY_SECONDS = 120.0
"""Within this a fault must be got over."""
SETTLE_SECONDS = 600.0
"""Within this after the last fault all must be posted, and then always one more row be done."""
LOOK_SECONDS = 0.2
BACKLOG = 10
"""Faults wait, within reason, until no more than these rows are left of what was asked for, so that
slow jobs are struck from the first to the last."""


class Run:
    """One run from start to table."""

    def __init__(self, options: Options, console: Console) -> None:
        self._options = options
        self._console = console
        self._draw = random.Random(options.seed)
        self._ledger = Ledger()
        self._done = 0
        self._began = time.monotonic()

    def run(self) -> bool:
        """Whether nothing was wrong."""
        shared_before = leftovers.shared_memory()
        stack = Stack(self._options)
        try:
            return self._run(stack, shared_before)
        finally:
            leftovers.end_all()
            stack.close(keep_logs=bool(self._ledger.violations))

    def _run(self, stack: Stack, shared_before: set[str]) -> bool:
        self._say(f"{stack.database.name}, disk {stack.disk.how}, logs in {stack.logs}")
        clients = Clients(stack.addresses, self._options, self._ledger, self._share)
        try:
            stack.keep()
            with reachable(stack.database) as database:
                self._recover(stack, database, Held({}))
                observer = Observer(stack.database.url, self._ledger)
                observer.start()
                clients.start()
                self._strike_all(stack, database)
                clients.join(SETTLE_SECONDS)
                self._settle(stack, database)
                observer.look()
                observer.stop()
                clients.stop()
                expected = Counter(
                    plans=self._options.plans + self._options.jobs, jobs=self._options.jobs
                )
                audit(database, clients.ids, expected, self._ledger)
            if self._options.ray:
                leftovers.look_into_ray(stack, self._ledger)
        finally:
            self._stop(stack)
        runs = overlaps(stack.entries(), self._ledger)
        leftovers.look_for(stack, shared_before, self._ledger)
        self._report(stack, clients, runs)
        return not self._ledger.violations

    def _share(self) -> float:
        """What the clients may have posted: all of it shortly before the last fault."""
        return (self._done + 1) / max(self._options.faults, 1)

    def _strike_all(self, stack: Stack, database: Database) -> None:
        for fault in self._drawn():
            self._catch_up(stack, database)
            time.sleep(self._draw.uniform(0.0, 1.5))
            held = self._held(database)
            struck = self._ledger.strike(fault.name)
            if not fault.strike(stack, self._draw):
                self._ledger.struck.remove(struck)
                continue
            recovered = self._recover(stack, database, held)
            if recovered:
                struck.recovered = time.time()
            else:
                self._ledger.violate(f"not got over within {RECOVERY_SECONDS:g} s")
            self._done += 1
            self._say(f"{self._done:3} {fault.name}: {time.time() - struck.began:.1f} s")

    def _catch_up(self, stack: Stack, database: Database) -> None:
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            stack.keep()
            with contextlib.suppress(SQLAlchemyError):
                if unfinished(database) <= BACKLOG:
                    return
            time.sleep(LOOK_SECONDS)
        self._say(f"over {BACKLOG} rows are left, {RECOVERY_SECONDS:g} s after the last fault")

    def _drawn(self) -> Iterator[Fault]:
        """A sequence in which every kind comes before any comes again; ends after enough."""
        kinds = [f for f in FAULTS if not self._options.only or f.name in self._options.only]

        def endless() -> Iterator[Fault]:
            while self._done < self._options.faults:
                for fault in self._draw.sample(kinds, len(kinds)):
                    if self._done < self._options.faults:
                        yield fault

        return endless()

    def _held(self, database: Database) -> Held:
        """The rows that are held now; none where the database is still coming back."""
        try:
            return Held.now(database)
        except SQLAlchemyError:
            return Held({})

    def _recover(self, stack: Stack, database: Database, held: Held) -> bool:
        """Wait until all processes answer, and someone goes on with each row that was held."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            stack.keep()
            try:
                if stack.answers() and not held.left_alone(database):
                    return True
            except SQLAlchemyError:
                pass
            time.sleep(LOOK_SECONDS)
        return False

    def _settle(self, stack: Stack, database: Database) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        fewest: float = math.inf
        while time.monotonic() < deadline:
            stack.keep()
            try:
                left: float = unfinished(database)
            except SQLAlchemyError:
                left = math.inf
            if not left:
                self._say("all is done")
                return
            if left < fewest:  # a slow machine takes long, but goes on
                fewest, deadline = left, time.monotonic() + SETTLE_SECONDS
            time.sleep(LOOK_SECONDS)
        self._ledger.violate("not everything was done in the end", at=0)

    def _stop(self, stack: Stack) -> None:
        """As an operator does, the database last."""
        for each in [*stack.workers, *stack.apis, *([stack.head] if stack.head else [])]:
            try:
                each.end()
            except TimeoutError as error:
                self._ledger.violate(str(error), at=0)
        stack.database.stop()

    def _report(self, stack: Stack, clients: Clients, runs: int) -> None:
        self._console.print(self._ledger.table())
        for violation in self._ledger.violations:
            self._console.print(f"[red]{violation.during}:[/] {violation.what}", soft_wrap=True)
        for each in stack.kept:
            for line in each.ended_by_itself:
                self._say(f"{each.name} ended by itself: {line}")
        self._say(
            f"{self._options.plans} plans, {self._options.jobs} jobs in {runs} runs, "
            f"{clients.followed} followed to the end, {self._done} faults, "
            f"{len(self._ledger.violations)} violations"
        )

    def _say(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"{seconds:6.1f} s  {text}", soft_wrap=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--plans", type=int, default=500)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ray", action="store_true", help="a real Ray with tiny runs on CPU cores")
    parser.add_argument("--lease-seconds", type=float, default=4.0)
    parser.add_argument("--away-seconds", type=float, default=15.0)
    parser.add_argument("--only", nargs="*", default=(), help="these kinds of fault alone")
    given = vars(parser.parse_args())
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended
    os.environ.setdefault("PYTHONPATH", os.getcwd())
    options = Options(**{**given, "only": tuple(given["only"])})
    sys.exit(0 if Run(options, Console(width=110)).run() else 1)


if __name__ == "__main__":
    main()
