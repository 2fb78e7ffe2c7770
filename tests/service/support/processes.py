"""What /proc tells of processes."""

from pathlib import Path


def children(process_id: int) -> set[int]:
    """The processes that any of its threads has started."""
    lists = Path(f"/proc/{process_id}/task").glob("*/children")
    return {int(child) for file in lists for child in file.read_text().split()}


def running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
