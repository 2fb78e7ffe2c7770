"""Programs that end with the one that started them, however that ended."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable


def when_stdin_closes(do: Callable[[], None]) -> None:
    """In a thread, once: the parent holds our standard input open for as long as it lives."""

    def wait() -> None:
        # Closed from the beginning counts, and so does what cannot be read.
        if sys.stdin is not None:
            descriptor = sys.stdin.fileno()
            # Not through Python's buffer, whose lock would be missed at the interpreter's end.
            with contextlib.suppress(OSError):
                while os.read(descriptor, 4096):
                    pass
        do()

    threading.Thread(target=wait, daemon=True).start()
