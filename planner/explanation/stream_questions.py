"""Questions about jobs that may stream responses, or end a generation on other GPUs or sizes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from automap.planner.explanation.question import Question, all_rows_of
from automap.planner.explanation.study import Study
from automap.planner.search.model.problem import Problem
from automap.planner.search.space.search_space import Rows, all_rows
from automap.planner.search.space.selected import Selected


def streams_and_tails(study: Study, plan: Selected) -> Iterator[Question]:
    """No responses before all are there; every generation without its tail, or with one."""
    if any(edge.streamed for edge in study.problem.precedences):
        yield Question(
            "streaming:no", "no responses handed over before all are out", all_rows_of, _whole
        )
    for table in study.tables.calls:
        chosen = plan.call_rows[table.call]
        if chosen is None or chosen[0] != table.copy or table.tail is None:
            continue
        call, tailed = study.job.dataflow.calls[table.call], bool(table.tail[chosen[1]])
        yield Question(
            f"tail:{call.id}:{'no' if tailed else 'yes'}",
            f"{call.id} {'without its' if tailed else 'with a'} tail",
            partial(_with_tail, call=table.call, tailed=not tailed),
            missing="no setting with a tail fits: its replicas do not part so",
        )


def _whole(problem: Problem) -> Problem:
    """The problem in which every call waits for all responses."""
    edges = tuple(replace(edge, chunks=0) for edge in problem.precedences)
    return replace(problem, precedences=edges)


def _with_tail(study: Study, call: int, *, tailed: bool) -> Rows:
    """All rows, of one call those with a tail, or those without."""
    rows = all_rows(study.tables)
    return Rows(
        rows.copies,
        [
            mask if table.call != call or table.tail is None else (table.tail > 0) == tailed
            for mask, table in zip(rows.calls, study.tables.calls, strict=True)
        ],
    )
