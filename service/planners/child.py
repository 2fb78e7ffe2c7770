"""The planner process: reads a request per line, plans, writes an answer per line.

It is kept warm, so that imports and cost tables are loaded once, and it is expendable: the service
ends it when a job takes too long or is cancelled. It ends itself when the service is gone.
"""

import gc
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel, TypeAdapter, ValidationError

from automap.planner.errors import InfeasibleError, NoSolutionInTimeError, SpecError
from automap.planner.plan.types import Strategy
from automap.planner.profiles.folder import SHIPPED
from automap.planner.spec import ClusterSpec, JobSpec
from automap.planner.studies.result import ExplainedInfeasibleError
from automap.service.planners.messages import (
    TASK,
    Answer,
    CompareTask,
    Crash,
    Done,
    EstimateTask,
    ExplainTask,
    FrontTask,
    InfeasibleFailure,
    NoSolutionFailure,
    PlannerTask,
    PlanTask,
    ReplanTask,
    SimulateTask,
    SpecFailure,
    StrategiesTask,
    SuggestTask,
    WhatIfTask,
    spec_of,
)

log = logging.getLogger(__name__)
PROFILES_FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".").absolute()
_STRATEGIES = TypeAdapter(list[Strategy])


def main() -> None:
    """Serve requests from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then stops us
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not spoil an answer
    logging.basicConfig(level=logging.INFO)
    import automap.planner.planning
    import automap.planner.studies.infeasibility_report  # noqa: F401 - both warm this process before its first request

    gc.freeze()  # what was imported stays, so no collection need look at it

    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    while True:
        answers.write(answer_to_line(lines.get()) + b"\n")
        answers.flush()


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        lines.put(line)
    os._exit(0)  # the service is gone; a search that still runs is for nobody


def answer_to_line(line: bytes) -> bytes:
    """The answer to a line of JSON, as a line of JSON; a request that cannot be read is a crash."""
    try:
        request = TASK.validate_json(line)
    except ValidationError as error:
        log.exception("the service sent a request that cannot be read")
        answer: Answer = Crash(exception=type(error).__name__)
    else:
        answer = answer_to(request)
    return answer.model_dump_json(by_alias=True).encode()


def answer_to(request: PlannerTask) -> Answer:
    """Do what is asked; the planner's expected failures become data."""
    try:
        if (spec := spec_of(request)) is not None:
            _materialise_tables(spec)
        return _done(request)
    except SpecError as error:
        return SpecFailure(field=error.field, message=error.message, remedy=error.remedy)
    except ExplainedInfeasibleError as error:
        return InfeasibleFailure(reasons=error.reasons, refusal=error.refusal)
    except InfeasibleError as error:
        return InfeasibleFailure(reasons=error.reasons)
    except NoSolutionInTimeError as error:
        return NoSolutionFailure(lower_bound_seconds=error.lower_bound_seconds)
    except Exception as error:
        log.exception("%s failed", request.kind)
        return Crash(exception=type(error).__name__)


def _done(request: PlannerTask) -> Done:
    from automap.planner import planning
    from automap.planner.explanation.explain import explain
    from automap.planner.studies.infeasibility_report import make_plan_or_explain
    from automap.planner.studies.pareto import pareto
    from automap.planner.studies.what_if import what_if

    match request:
        case PlanTask():
            _write_tables(request.profiles.values())
            return _json(make_plan_or_explain(request.spec, profiles=request.profiles))
        case FrontTask():
            return _json(pareto(request.spec, tolerance=request.tolerance))
        case WhatIfTask():
            _write_tables(request.profiles.values())
            return _json(
                what_if(
                    request.spec,
                    nodes=request.nodes,
                    gpus=request.gpus,
                    pool=request.pool,
                    profiles=request.profiles,
                )
            )
        case EstimateTask():
            return _json(planning.estimate(request.spec, request.placement))
        case CompareTask():
            _check_strategies(request.strategies, list(planning.STRATEGIES))
            compared = planning.compare(request.spec, request.plan, request.strategies)
            return Done(result=_STRATEGIES.dump_python(compared, mode="json", by_alias=True))
        case SimulateTask():
            return _simulated(request)
        case ExplainTask():
            return _json(explain(request.plan, request.options))
        case ReplanTask() | SuggestTask():
            return _of_running(request)
        case StrategiesTask():
            return Done(
                result=[
                    {"name": it.name, "description": it.description, "reference": it.reference}
                    for it in planning.STRATEGIES.values()
                ]
            )


def _of_running(request: ReplanTask | SuggestTask) -> Done:
    from automap.planner.replanning.replan import replan
    from automap.planner.runs.suggestion import suggest

    if isinstance(request, ReplanTask):
        return _json(replan(request.plan, request.options))
    return _json(suggest(request.plan, request.run_window))


def _materialise_tables(spec: JobSpec) -> None:
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    _write_tables(pool.profile for pool in pools if pool.profile and pool.profile != SHIPPED)


def _write_tables(versions: Iterable[str]) -> None:
    from automap.planner.profiles.tables import write_missing_tables

    for version in versions:
        # A spec names a stored profile by its version, which is a folder in there.
        os.chdir(PROFILES_FOLDER)
        write_missing_tables(Path(version))


def _simulated(request: SimulateTask) -> Done:
    from automap.planner.simulation.chrome_trace import chrome_trace
    from automap.planner.simulation.report import simulate

    try:
        simulation, timeline = simulate(
            request.plan, iterations=request.iterations, seed=request.seed
        )
    except ValueError as error:  # a plan of another version, whose prices were others
        raise SpecError("plan", str(error), remedy="plan the job again") from error
    if request.trace:
        simulation = simulation.model_copy(update={"trace": chrome_trace(timeline)})
    return Done(result=simulation.model_dump(mode="json"))


def _check_strategies(names: list[str], known: list[str]) -> None:
    for index, name in enumerate(names):
        if name not in known:
            raise SpecError(
                f"strategies.{index}", "there is no such strategy", remedy=f"use {', '.join(known)}"
            )


def _json(result: BaseModel) -> Done:
    return Done(result=result.model_dump(mode="json", by_alias=True))


if __name__ == "__main__":
    main()
