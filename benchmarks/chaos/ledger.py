"""What happened: faults, how long the service took to recover, and what must never be."""

import statistics
import threading
import time
from dataclasses import dataclass, field

from rich.table import Table

AT_THE_END = "at the end"


@dataclass(slots=True)
class Struck:
    name: str
    began: float
    recovered: float | None = None


@dataclass(slots=True)
class Violation:
    during: str
    what: str


@dataclass(slots=True)
class Ledger:
    """Times are by `time.time`, which rows of the database have, too."""

    struck: list[Struck] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, name: str) -> Struck:
        self.struck.append(Struck(name, time.time()))
        return self.struck[-1]

    def violate(self, what: str, *, at: float | None = None) -> None:
        """Note what must never be, under the fault before it; `at` 0: under none."""
        moment = time.time() if at is None else at
        before = [each.name for each in self.struck if each.began <= moment]
        with self._lock:
            if all(what != each.what for each in self.violations):
                self.violations.append(Violation(before[-1] if before else AT_THE_END, what))

    def table(self) -> Table:
        table = Table("fault", "struck", "median s to recover", "longest s", "violations")
        for column in table.columns[1:]:
            column.justify = "right"
        names = dict.fromkeys(each.name for each in self.struck)
        for name in [*names, AT_THE_END]:
            found = [each for each in self.struck if each.name == name]
            seconds = [each.recovered - each.began for each in found if each.recovered]
            bad = sum(each.during == name for each in self.violations)
            if found or bad:
                table.add_row(
                    name,
                    str(len(found)),
                    f"{statistics.median(seconds):.1f}" if seconds else "–",
                    f"{max(seconds):.1f}" if seconds else "–",
                    str(bad),
                )
        return table
