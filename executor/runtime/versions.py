"""Which weights generated what is trained on, and that they are no older than the plan allows.

The version of a role's weights is the number of iterations that it was trained in. Copies other
than its home have the version of their last weight sync.
"""

import threading
from collections.abc import Mapping

from automap.executor.errors import RunError
from automap.executor.runtime.finished_calls import FinishedCall


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
        self._generated: dict[int, int] = {}

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
                has_shadow = role in self._shadows
                version = self._received.get(role, self._first) if has_shadow else trained
                oldest = self._generated.get(call.iteration, version)
                self._generated[call.iteration] = min(oldest, version)

    def staleness(self, iteration: int) -> int:
        """Version that the iteration's training starts from, less that of its oldest rollout.

        Raises:
            RunError: it is above the bound. That is an error of the schedule.
        """
        with self._lock:
            found = iteration - 1 - self._generated.get(iteration, iteration - 1)
        if not 0 <= found <= self._bound:
            raise RunError(
                f"iteration {iteration} would train on a rollout that is {found} iterations old, "
                f"and the plan's staleness is {self._bound}"
            )
        return found
