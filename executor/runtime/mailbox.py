"""From Ray's threads, which must not wait, to the thread that acts on what happened.

Mostly the program waits for a result, and then it is the one that acts: that saves waking another
thread in between. While it does something else, a helper thread acts in its stead.
"""

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue with two readers, of which the program goes first."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._program = threading.Condition(lock)
        self._helper = threading.Condition(lock)
        self._lock = lock
        self._items: deque[T] = deque()
        self._num_waiting = 0
        self._closed = False

    def put(self, item: T) -> None:
        """Returns at once."""
        with self._lock:
            self._items.append(item)
            (self._program if self._num_waiting else self._helper).notify()

    def take(self, timeout_seconds: float) -> T | None:
        """The program's way: an item, or None after a while, or when woken."""
        with self._lock:
            if not self._items:
                self._num_waiting += 1
                self._program.wait(timeout_seconds)
                self._num_waiting -= 1
            return self._items.popleft() if self._items else None

    def leave(self) -> None:
        """The program waits no longer: what is left, or comes, is the helper's."""
        with self._lock:
            if self._items:
                self._helper.notify()

    def take_as_helper(self) -> T | None:
        """The helper's way: an item, or None once the mailbox is closed."""
        with self._lock:
            while not self._items and not self._closed:
                self._helper.wait()
            return None if self._closed else self._items.popleft()

    def wake(self) -> None:
        """Have the program look again at what it waits for."""
        with self._lock:
            self._program.notify_all()

    def close(self) -> None:
        """The helper may go."""
        with self._lock:
            self._closed = True
            self._helper.notify_all()
            self._program.notify_all()
