"""Questions about jobs that may stream responses, or end a generation on other GPUs or sizes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from automap.planner.explanation.question import Question
from automap.planner.explanation.study import Study
from automap.planner.search import Rows, SearchSpace, Selected
from automap.planner.search.model.problem import Problem


def streams_and_tails(study: Study, plan: Selected) -> Iterator[Question]:
    """Scoring that waits for all responses; every generation without its tail, or with one."""
    if any(edge.streamed for edge in study.problem.precedences):
        yield Question("streaming:no", "responses handed over all at once", change=_whole)
    for table in study.tables.calls:
        chosen = plan.call_rows[table.call]
        if chosen is None or chosen[0] != table.copy or table.tail is None:
            continue
        call, tailed = study.job.dataflow.calls[table.call], bool(table.tail[chosen[1]])
        yield Question(
            f"tail:{call.id}:{'no' if tailed else 'yes'}",
            f"{call.id} {'without its' if tailed else 'with a'} tail",
            partial(_with_tail, call=table.call, tailed=not tailed),
            missing="no setting with a tail fits: its replicas cannot be divided so",
        )


def _whole(problem: Problem) -> Problem:
    """The problem in which every call waits for all responses."""
    edges = tuple(replace(edge, chunks=0) for edge in problem.precedences)
    return replace(problem, precedences=edges)


def _with_tail(space: SearchSpace, call: int, *, tailed: bool) -> Rows:
    """All rows, of one call those with a tail, or those without."""
    return space.rows_where(
        calls={
            number: (table.tail > 0) == tailed
            for number, table in enumerate(space.tables.calls)
            if table.call == call and table.tail is not None
        }
    )
