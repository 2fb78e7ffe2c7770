"""How much a key may ask for: requests a minute, plans at once, more in the queues.

Requests are counted in this process: several servers of one database allow each as much. What waits
in the queues is counted in the database, for each owner by itself.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from automap.service.api.refusals import TooManyRequestsError
from automap.service.settings import Settings


class KeyLimits:
    """Counts what each key asks for, by the key's id."""

    def __init__(self, settings: Settings) -> None:
        self._per_minute = RateLimitItemPerMinute(settings.max_requests_per_minute)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._max_plans = settings.max_plans_at_once
        self._max_queued = settings.max_queued
        self._planning: Counter[str] = Counter()

    def count_request(self, key_id: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: there were as many within a minute as a key may send.
        """
        if self._limiter.hit(self._per_minute, key_id):
            return
        reset = self._limiter.get_window_stats(self._per_minute, key_id).reset_time
        raise TooManyRequestsError(
            f"at most {self._per_minute.amount} requests in a minute",
            setting="max_requests_per_minute",
            retry_seconds=self._seconds_until(reset),
        )

    @contextmanager
    def planning(self, key_id: str) -> Iterator[None]:
        """Count a request that a planner works on, for as long as it is answered.

        Raises:
            TooManyRequestsError: as many of the key's are being answered as it may have.
        """
        if self._planning[key_id] >= self._max_plans:
            raise TooManyRequestsError(
                f"at most {self._max_plans} requests that plan at the same time; queue plans with "
                "Prefer: respond-async",
                setting="max_plans_at_once",
                retry_seconds=5,
            )
        self._planning[key_id] += 1
        try:
            yield
        finally:
            self._planning[key_id] -= 1
            if not self._planning[key_id]:
                del self._planning[key_id]

    def check_queues(self, waiting: int) -> None:
        """Refuse another plan or job of an owner of whom so many wait.

        Raises:
            TooManyRequestsError: they are as many as may wait.
        """
        if waiting >= self._max_queued:
            raise TooManyRequestsError(
                f"nothing queued while {self._max_queued} of your plans and jobs wait",
                setting="max_queued",
                retry_seconds=30,
            )

    @staticmethod
    def _seconds_until(moment: float) -> int:
        return max(1, round(moment - time.time() + 0.5))
