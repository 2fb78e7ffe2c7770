"""Which weights generated what is trained on, and that they are no older than the plan allows.

The version of a role's weights is the number of iterations that it was trained in. Copies other
than its home have the version of their last weight sync. A rollout keeps it, row by row, in the
column `weights_version`.
"""

import threading
from collections.abc import Mapping

import torch

from automap.executor.batch import Batch
from automap.executor.errors import RunError
from automap.executor.runtime.finished_calls import FinishedCall
from automap.executor.workers.row_references import Rows, fetch, inline

COLUMN = "weights_version"


class Versions:
    """Follows a run's calls as they end; safe to use from any thread."""

    def __init__(self, bound: int, shadows: Mapping[str, str]) -> None:
        """Nothing was trained.

        Args:
            bound: How many versions a rollout may be behind the weights that train on it.
            shadows: Role → the copy that generates in its home's stead, for roles that have one.
        """
        self._bound = bound
        self._shadows = shadows
        self._lock = threading.Lock()
        self._trained: dict[str, int] = {}
        self._received: dict[str, int] = {}
        self._first = 0
        self._generated: dict[tuple[int, str], int] = {}

    def begin(self, version: int) -> None:
        """All weights have this version; a run that is resumed has more than 0."""
        with self._lock:
            self._first = version
            self._trained.clear()
            self._received.clear()
            self._generated.clear()

    def ended(self, call: FinishedCall) -> None:
        """Note what a call changed; calls that share a device end in the order of their starts."""
        kind = call.name.id.split(".")[1] if "." in call.name.id else ""
        role = call.name.role
        with self._lock:
            trained = self._trained.get(role, self._first)
            if kind == "train":
                self._trained[role] = call.iteration
            elif kind == "sync":
                self._received[role] = trained
            elif kind == "generate":
                self._generated[call.iteration, call.name.id] = self._generating(role)

    def generating(self, role: str) -> int:
        """Version of the weights that a role generates with now."""
        with self._lock:
            return self._generating(role)

    def _generating(self, role: str) -> int:
        versions = self._received if role in self._shadows else self._trained
        return versions.get(role, self._first)

    def received(self, role: str) -> int:
        """Version of the weights that a role's shadow has."""
        with self._lock:
            return self._received.get(role, self._first)

    def marked(self, rollout: Rows, *, iteration: int, call_id: str) -> Rows:
        """What a call generated that has just ended, with the column of its weights' version."""
        with self._lock:
            version = self._generated.pop((iteration, call_id))
        column = torch.full((rollout.num_rows,), version)
        return rollout.merge(inline(Batch({COLUMN: column})))

    def check(self, rollout: Rows, *, iteration: int) -> int:
        """Version that the iteration's training starts from, less that of the oldest row.

        Raises:
            RunError: it is above the bound. That is an error of the schedule.
        """
        behind = iteration - 1 - fetch(rollout.only(COLUMN)).tensor(COLUMN)
        least, most = int(behind.min()), int(behind.max())
        if least < 0 or most > self._bound:
            raise RunError(
                f"iteration {iteration} would train on a rollout that is "
                f"{least if least < 0 else most} iterations old, and the plan's staleness is "
                f"{self._bound}"
            )
        return most
