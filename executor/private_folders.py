"""Folders that only their owner may look into: runs have settings, responses and weights in them.

What is there already keeps its mode: several users may share a folder by its group on purpose.
"""

import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each for its owner alone.

    Raises:
        OSError: it cannot be made, or is a file.
    """
    if folder.is_dir():
        return
    make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)  # another process may make it at the same time


def is_open_to_all(path: Path) -> bool:
    """Whether every user of this machine can read a file or folder that is there."""
    whole = path.absolute()
    try:
        readable = whole.stat().st_mode & stat.S_IROTH
        return bool(readable) and all(each.stat().st_mode & stat.S_IXOTH for each in whole.parents)
    except OSError:
        return False  # it is not there, or not even we can look
