"""The planner process: reads a request per line, plans, writes an answer per line.

It is kept warm, so that imports and cost tables are loaded once, and it is expendable: the service
ends it when a job takes too long or is cancelled. It ends itself when the service is gone.
"""

import logging
import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from pydantic import TypeAdapter

from planner.errors import InfeasibleError, NoSolutionInTimeError, SpecError
from planner.result import Plan, Strategy
from service.planner_messages import (
    REQUEST,
    Answer,
    CompareRequest,
    Crash,
    Done,
    EstimateRequest,
    ExplainRequest,
    InfeasibleFailure,
    NoSolutionFailure,
    PlannerRequest,
    PlanRequest,
    ReplanRequest,
    SpecFailure,
    StrategiesRequest,
)

log = logging.getLogger(__name__)
_STRATEGIES = TypeAdapter(list[Strategy])


def main() -> None:
    """Serve requests from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then stops us
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not spoil an answer
    logging.basicConfig(level=logging.INFO)
    import planner.planning  # noqa: F401 - warms this process before its first request

    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    while True:
        answer = answer_to(REQUEST.validate_json(lines.get()))
        answers.write(answer.model_dump_json(by_alias=True).encode() + b"\n")
        answers.flush()


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        lines.put(line)
    os._exit(0)  # the service is gone; a search that still runs is for nobody


def answer_to(request: PlannerRequest) -> Answer:
    """Do what is asked; the planner's expected failures become data."""
    try:
        return _done(request)
    except SpecError as error:
        return SpecFailure(field=error.field, message=error.message, remedy=error.remedy)
    except InfeasibleError as error:
        return InfeasibleFailure(reasons=error.reasons)
    except NoSolutionInTimeError as error:
        return NoSolutionFailure(lower_bound_seconds=error.lower_bound_seconds)
    except Exception as error:
        log.exception("%s failed", request.kind)
        return Crash(exception=type(error).__name__)


def _done(request: PlannerRequest) -> Done:
    from planner import planning

    match request:
        case PlanRequest():
            return _plan(planning.make_plan(request.spec))
        case EstimateRequest():
            return _plan(planning.estimate(request.spec, request.placement))
        case CompareRequest():
            _check_strategies(request.strategies, list(planning.STRATEGIES))
            compared = planning.compare(request.spec, request.plan, request.strategies)
            return Done(result=_STRATEGIES.dump_python(compared, mode="json", by_alias=True))
        case ExplainRequest():
            from planner.explain.explain import explain

            explanation = explain(request.plan, request.options)
            return Done(result=explanation.model_dump(mode="json", by_alias=True))
        case ReplanRequest():
            from planner.replan import replan

            answer = replan(request.plan, request.options)
            return Done(result=answer.model_dump(mode="json", by_alias=True))
        case StrategiesRequest():
            return Done(
                result=[
                    {"name": it.name, "description": it.description, "reference": it.reference}
                    for it in planning.STRATEGIES.values()
                ]
            )


def _check_strategies(names: list[str], known: list[str]) -> None:
    for index, name in enumerate(names):
        if name not in known:
            raise SpecError(
                f"strategies.{index}", "there is no such strategy", remedy=f"use {', '.join(known)}"
            )


def _plan(plan: Plan) -> Done:
    return Done(result=plan.model_dump(mode="json", by_alias=True))


if __name__ == "__main__":
    main()
