"""Groups of measurements whose errors go together, so that they are left out and averaged together.

Rows of one project share software, harness and printing; a table of one project must not carry a
headline. Tables of generation and memory have few projects: there a group is one model of a
project, on all its GPUs.
"""

from automap.planner.validation.rows import GenerationRow, MemoryRow, Row

LOAD_STRATA = (0.05, 0.2, 0.5)
"""Loads at which the strata of decode steps end; rollouts of a plan are in the first."""
BY_MODEL = (GenerationRow, MemoryRow)


def project_of(row: Row) -> str:
    """Project behind a source written as "title; project, document"; else the whole source."""
    title, _, rest = row.source.partition(";")
    return rest.split(",")[0].strip() or title.strip()


def group_of(row: Row) -> str:
    """Group of a row: its project, in tables of generation and memory with its model."""
    if isinstance(row, BY_MODEL):
        return f"{project_of(row)}: {row.model}"
    return project_of(row)


def load_of(row: Row) -> float | None:
    """Load λ of a server: requests in flight per replica ÷ response tokens; None: not stated.

    A request joins and one leaves every 1 ÷ λ decode steps.
    """
    if not isinstance(row, GenerationRow) or not row.concurrency or not row.response_length:
        return None
    inner = (row.tensor_parallel_size or 1) * (row.pipeline_parallel_size or 1)
    replicas = row.data_parallel_size or max(row.num_gpus // inner, 1)
    return row.concurrency / replicas / row.response_length


def load_stratum(row: Row) -> str:
    """Stratum of a row's load, in words; empty where a row has none."""
    load = load_of(row)
    if load is None:
        return ""
    low = 0.0
    for high in LOAD_STRATA:
        if load <= high:
            return f"load {low:g} to {high:g}"
        low = high
    return f"load above {low:g}"
