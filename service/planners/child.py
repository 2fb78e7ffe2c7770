"""The planner process: reads a request per line, plans, writes an answer per line.

It is kept warm, so that imports and cost tables are loaded once, and it is expendable: the service
ends it when a job takes too long or is cancelled. It ends itself when the service is gone.
"""

import gc
import logging
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pydantic import BaseModel, TypeAdapter, ValidationError

from automap.executor.telemetry import traces
from automap.planner import Strategy
from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    SpecError,
)
from automap.planner.profiles import SHIPPED
from automap.planner.spec import ClusterSpec, JobSpec
from automap.planner.studies import ExplainedInfeasibleError
from automap.service.planners.messages import (
    Answer,
    CompareTask,
    Crash,
    Done,
    Errand,
    EstimateTask,
    ExplainTask,
    ExportTask,
    FrontTask,
    InfeasibleFailure,
    NoSolutionFailure,
    NotExportableFailure,
    PlannerTask,
    PlanTask,
    ReplanTask,
    Setup,
    SimulateTask,
    SpecFailure,
    StrategiesTask,
    SuggestTask,
    WhatIfTask,
    spec_of,
)
from automap.service.telemetry import context, logs

if TYPE_CHECKING:
    from automap.planner import TableCache

log = logging.getLogger("automap.service.planners.child")  # this runs as __main__
PROFILES_FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".").absolute()
MEMORY_BYTES = int(sys.argv[2]) if len(sys.argv) > 2 else 0
"""What the process may reserve; 0: as much as there is."""
NICENESS = 3
"""Whoever reads what is stored goes before whoever plans. Much more would starve searches, which
are bound by time, where others use the machine as well."""
_STRATEGIES = TypeAdapter(list[Strategy])


def main() -> None:
    """Serve requests from standard input until it closes."""
    os.nice(NICENESS)
    if MEMORY_BYTES:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then stops us
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints must not spoil an answer
    _set_up(Setup.model_validate_json(sys.stdin.buffer.readline() or b"{}"))
    from automap.planner import (
        TableCache,
        make_plan_or_explain,  # noqa: F401 - warms this process
    )

    gc.freeze()  # what was imported stays, so no collection need look at it

    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, lines), daemon=True).start()
    tables = TableCache()  # of the jobs asked about last: the next question need not price them
    while True:
        answers.write(answer_to_line(lines.get(), tables) + b"\n")
        answers.flush()


def _set_up(setup: Setup) -> None:
    logs.set_up(setup.logs)
    os.environ.update(setup.environment)
    traces.start("automap-planner")


def _read(requests: BinaryIO, lines: queue.SimpleQueue[bytes]) -> None:
    for line in requests:
        lines.put(line)
    os._exit(0)  # the service is gone; a search that still runs is for nobody


def answer_to_line(line: bytes, tables: "TableCache") -> bytes:
    """The answer to a line of JSON, as a line of JSON; a request that cannot be read is a crash."""
    try:
        errand = Errand.model_validate_json(line)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        log.error("the service sent a request that cannot be read: %s", wrong)
        answer: Answer = Crash(exception=type(error).__name__)
    else:
        kind = errand.task.kind
        with context.resumed(errand.origin), traces.span(f"planner.{kind}"):
            began = time.monotonic()
            answer = answer_to(errand.task, tables)
            took = round(time.monotonic() - began, 3)
            log.info("%s: %s", kind, answer.outcome, extra={"seconds": took})
    return answer.model_dump_json(by_alias=True).encode()


def answer_to(request: PlannerTask, tables: "TableCache") -> Answer:
    """Do what is asked; the planner's expected failures become data."""
    try:
        if (spec := spec_of(request)) is not None:
            _materialise_tables(spec)
        return _done(request, tables)
    except SpecError as error:
        return SpecFailure(field=error.field, message=error.message, remedy=error.remedy)
    except ExplainedInfeasibleError as error:
        return InfeasibleFailure(reasons=error.reasons, refusal=error.refusal)
    except InfeasibleError as error:
        return InfeasibleFailure(reasons=error.reasons)
    except NotExportableError as error:
        return NotExportableFailure(target=error.target, reasons=error.reasons)
    except NoSolutionInTimeError as error:
        return NoSolutionFailure(lower_bound_seconds=error.lower_bound_seconds)
    except Exception as error:
        log.exception("%s failed", request.kind)
        return Crash(exception=type(error).__name__)


def _done(request: PlannerTask, tables: "TableCache") -> Done:
    from automap import planner
    from automap.planner import explain, make_plan_or_explain, pareto, what_if

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
            return _json(planner.estimate(request.spec, request.placement))
        case CompareTask() | StrategiesTask():
            return _of_strategies(request)
        case ExportTask():
            return _json(planner.export(request.plan, request.target))
        case SimulateTask():
            return _simulated(request)
        case ExplainTask():
            return _json(explain(request.plan, request.options, tables=tables))
        case ReplanTask() | SuggestTask():
            return _of_running(request, tables)


def _of_strategies(request: CompareTask | StrategiesTask) -> Done:
    from automap.planner import STRATEGIES, compare

    if isinstance(request, StrategiesTask):
        return Done(
            result=[
                {"name": it.name, "description": it.description, "reference": it.reference}
                for it in STRATEGIES.values()
            ]
        )
    _check_strategies(request.strategies, list(STRATEGIES))
    compared = compare(request.spec, request.plan, request.strategies)
    return Done(result=_STRATEGIES.dump_python(compared, mode="json", by_alias=True))


def _of_running(request: ReplanTask | SuggestTask, tables: "TableCache") -> Done:
    from automap.planner import replan, suggest

    if isinstance(request, ReplanTask):
        return _json(replan(request.plan, request.options, tables=tables))
    return _json(suggest(request.plan, request.run_window, tables=tables))


def _materialise_tables(spec: JobSpec) -> None:
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    _write_tables(pool.profile for pool in pools if pool.profile and pool.profile != SHIPPED)


def _write_tables(versions: Iterable[str]) -> None:
    from automap.planner.profiles import write_missing_tables

    for version in versions:
        # A spec names a stored profile by its version, which is a folder in there.
        os.chdir(PROFILES_FOLDER)
        write_missing_tables(Path(version))


def _simulated(request: SimulateTask) -> Done:
    from automap.planner import simulate
    from automap.planner.simulation import chrome_trace

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
