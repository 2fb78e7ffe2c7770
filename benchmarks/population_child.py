"""One job of benchmarks.population in a process of its own.

Reads {"spec": …, "strategies": false, "started": SECONDS, "end_after": SECONDS} and prints what
came of the spec as a line of JSON. With strategies a second line adds what those come to that no
search starts from: the first stands even if they take too long. `started` is when the process was,
by the system's clock. This is the only module of the benchmark that calls the planner.
"""

import json
import resource
import signal
import sys
import time
from typing import Any

from automap import (
    STRATEGIES,
    InfeasibleError,
    JobSpec,
    NoSolutionInTimeError,
    compare,
    make_plan,
)
from benchmarks.population_jobs import digest

SLOW = "real_mcmc"
"""The strategy that takes as long as the time limit says."""
BYTES_OF_RSS = 1 if sys.platform == "darwin" else 1024
"""Unit of ru_maxrss."""


def planned(spec: Any) -> tuple[dict[str, Any], Any]:
    """What a spec comes to, and the plan where there is one: the best, whatever else is simple."""
    search = spec.search.model_copy(update={"simplicity_tolerance": 0.0})
    spec = spec.model_copy(update={"search": search})
    try:
        plan = make_plan(spec)
    except InfeasibleError as error:
        return {"outcome": "infeasible", "reason": str(error)}, None
    except NoSolutionInTimeError as error:
        row = {"outcome": "not found", "reason": str(error), "bound": error.lower_bound_seconds}
        return row, None
    placement = plan.placement().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    report = plan.search
    return {
        "outcome": "optimal" if report.status == "optimal" else "cut",
        "reason": report.stopped,
        "objective": report.objective,
        "value": report.objective_value,
        "bound": report.lower_bound,
        "gap": plan.relative_gap,
        "period_us": round(1e6 * plan.iteration_seconds),
        "price": plan.price_per_iteration,
        "gpus_used": plan.gpus_used,
        "target": report.target,
        "runs_with": plan.runs_with,
        "pricing_seconds": report.pricing_seconds,
        "solving_seconds": report.solving_seconds,
        "candidates": report.candidates_priced,
        "options": report.options,
        "placement": digest(placement),
        "strategies": by_name(plan.alternatives),
    }, plan


def by_name(strategies: list[Any]) -> dict[str, Any]:
    """Strategy → microseconds and price of an iteration; null where it has no placement."""
    return {
        each.name: {
            "period_us": round(1e6 * each.iteration_seconds),
            "price": each.price_per_iteration,
        }
        if each.feasible
        else None
        for each in strategies
    }


def main() -> None:
    request = json.load(sys.stdin)
    # Whoever started this ends it; should that be gone, the alarm does.
    signal.alarm(int(request["end_after"]) + 5)
    spec = JobSpec.model_validate(request["spec"])
    started, started_cpu = time.perf_counter(), time.process_time()
    row, plan = planned(spec)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row |= {
        "planning_seconds": time.perf_counter() - started,
        "planning_cpu_seconds": time.process_time() - started_cpu,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * BYTES_OF_RSS,
        "wall_seconds": time.time() - request["started"],
    }
    print(json.dumps(row), flush=True)
    if plan is not None and request["strategies"]:
        names = [name for name in STRATEGIES if name not in row["strategies"] and name != SLOW]
        others = by_name(compare(spec, plan, names))
        print(json.dumps({"strategies": row["strategies"] | others}), flush=True)


if __name__ == "__main__":
    main()
