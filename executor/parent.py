"""Programs that end with the one that started them, however that ended."""

import os
import sys
import threading
from collections.abc import Callable


def when_stdin_closes(do: Callable[[], None]) -> None:
    """In a thread, once: the parent holds our standard input open for as long as it lives."""
    descriptor = sys.stdin.fileno()

    def wait() -> None:
        # Not through Python's buffer, whose lock would be missed at the interpreter's end.
        while os.read(descriptor, 4096):
            pass
        do()

    threading.Thread(target=wait, daemon=True).start()
