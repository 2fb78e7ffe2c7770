"""The planner process: reads a request per line, plans, writes an answer per line.

It is kept warm, so that cost tables are loaded once, and it is expendable: the service ends it when
a job takes too long or is cancelled. It ends itself when the service is gone.
"""

import logging
import os
import queue
import resource
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

log = logging.getLogger(__name__)
NICENESS = 3
"""Whoever reads what is stored goes before whoever plans. Much more would starve searches, which
are bound by time, where others use the machine as well."""
_STRATEGIES = TypeAdapter(list[Strategy])


@dataclass(frozen=True, slots=True)
class Kept:
    """What a planner process has from one request to the next."""

    tables: "TableCache"
    """Prices of the jobs asked about last: the next question need not make them."""
    profiles_folder: Path


def import_planner() -> None:
    """Import whatever an answer takes; its names are imported when they are first asked for."""
    from automap.planner import (  # noqa: F401
        STRATEGIES,
        TableCache,
        compare,
        estimate,
        explain,
        export,
        make_plan_or_explain,
        pareto,
        replan,
        simulate,
        suggest,
        what_if,
    )


def serve(setup: Setup, answers: int) -> None:
    """Answer the requests of standard input on a descriptor, until the input closes."""
    from automap.planner import TableCache

    _set_up(setup)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    kept = Kept(TableCache(), setup.profiles_folder)
    with os.fdopen(answers, "wb") as out:
        while True:
            out.write(answer_to_line(lines.get(), kept) + b"\n")
            out.flush()


def _set_up(setup: Setup) -> None:
    os.nice(NICENESS)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    unlimited = hard == resource.RLIM_INFINITY
    most = setup.memory_bytes if unlimited else min(setup.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    os.environ.clear()
    os.environ.update(setup.environment)
    logs.set_up(setup.logs)
    traces.start("automap-planner")


def _read(lines: queue.SimpleQueue[bytes]) -> None:
    with open(0, "rb", closefd=False) as requests:
        for line in requests:
            lines.put(line)
    os._exit(0)  # the service is gone; a search that still runs is for nobody


def answer_to_line(line: bytes, kept: Kept) -> bytes:
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
            answer = answer_to(errand.task, kept)
            took = round(time.monotonic() - began, 3)
            log.info("%s: %s", kind, answer.outcome, extra={"seconds": took})
    return answer.model_dump_json(by_alias=True).encode()


def answer_to(request: PlannerTask, kept: Kept) -> Answer:
    """Do what is asked; the planner's expected failures become data."""
    try:
        if (spec := spec_of(request)) is not None:
            _materialise_tables(spec, kept.profiles_folder)
        return _done(request, kept)
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


def _done(request: PlannerTask, kept: Kept) -> Done:
    from automap import planner
    from automap.planner import explain, make_plan_or_explain, pareto, what_if

    match request:
        case PlanTask():
            _write_tables(request.profiles.values(), kept.profiles_folder)
            return _json(make_plan_or_explain(request.spec, profiles=request.profiles))
        case FrontTask():
            return _json(pareto(request.spec, tolerance=request.tolerance))
        case WhatIfTask():
            _write_tables(request.profiles.values(), kept.profiles_folder)
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
            return _json(explain(request.plan, request.options, tables=kept.tables))
        case ReplanTask() | SuggestTask():
            return _of_running(request, kept)


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


def _of_running(request: ReplanTask | SuggestTask, kept: Kept) -> Done:
    from automap.planner import replan, suggest

    if isinstance(request, ReplanTask):
        return _json(replan(request.plan, request.options, tables=kept.tables))
    return _json(suggest(request.plan, request.run_window, tables=kept.tables))


def _materialise_tables(spec: JobSpec, folder: Path) -> None:
    pools = spec.cluster.pools if isinstance(spec.cluster, ClusterSpec) else []
    named = (pool.profile for pool in pools if pool.profile and pool.profile != SHIPPED)
    _write_tables(named, folder)


def _write_tables(versions: Iterable[str], folder: Path) -> None:
    from automap.planner.profiles import write_missing_tables

    for version in versions:
        # A spec names a stored profile by its version, which is a folder in there.
        os.chdir(folder)
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
