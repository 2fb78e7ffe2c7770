"""The loop on this machine: profile, plan, run plans of one job, compare, learn.

    python -m benchmarks.loop [--work FOLDER] [--profile FOLDER] [--docs FOLDER]

Profiles the machine (five minutes, or takes the profile that `--profile` names), plans the job in
at least six ways, runs each with `automap run`, and writes predicted beside measured seconds, with
a scatter plot, to `loop.md` and `loop.svg`. The job has a tiny model on cores, one of half a
billion parameters on GPUs, and plans use at most two devices. Runs that are in the work folder
already are not run again: `--plans NAME` makes them one by one, where a machine is quiet for
minutes at a time.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from automap.planner.profiles.folder import disturbances, fingerprint
from benchmarks.loop import learning, plot, table
from benchmarks.loop.jobs import SIZES, pool_of, variants
from benchmarks.loop.profiling import profiled
from benchmarks.loop.runs import Outcome, planned, run

COMMAND = "make loop"
DOCS = Path("docs/internals")
FEWEST_TO_COMPARE = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=Path(".automap/loop"), help="runs go there")
    parser.add_argument("--profile", type=Path, help="measured before; default: measure now")
    parser.add_argument("--budget", type=float, default=280.0, help="seconds of profiling")
    parser.add_argument("--iterations", type=int, default=9, help="of each plan; one warms up")
    parser.add_argument("--docs", type=Path, default=DOCS, help="for loop.md, loop.svg")
    parser.add_argument("--plans", nargs="+", help="only these, by name")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    began, load = time.monotonic(), os.getloadavg()[0]
    sizes = SIZES["cuda" if _has_gpu() else "cpu"]
    profile = given.profile or profiled(given.work, sizes, given.budget)
    pool = pool_of(profile)
    wanted = [
        each
        for each in variants(pool["gpus_per_node"])
        if not given.plans or each.name in given.plans
    ]
    outcomes = []
    for variant, plan in planned(tuple(wanted), sizes, pool):
        outcomes.append(run(variant, plan, sizes, given.work, iterations=given.iterations))
        predicted, measured = plan.iteration_seconds, outcomes[-1].measured
        sys.stdout.write(f"{variant.name}: {predicted:.3f} s predicted, {measured:.3f} measured\n")
        sys.stdout.flush()
    if len(outcomes) < FEWEST_TO_COMPARE:
        sys.stdout.write(f"kept in {given.work}; the page is written from several plans\n")
        return
    versions = learning.clean(given.work / "versions")
    gains = {
        "from_one": learning.from_one(outcomes, profile, versions),
        "leaving_one_out": learning.leaving_one_out(outcomes, profile, versions),
    }
    page = table.markdown(
        outcomes,
        gains["from_one"],
        gains["leaving_one_out"],
        conditions=_conditions(profile, load, time.monotonic() - began, outcomes),
        command=COMMAND,
    )
    (given.docs / "loop.md").write_text(page, encoding="utf-8")
    plot.draw(given.docs / "loop.svg", outcomes)
    table.write_json(given.work / "loop.json", outcomes, gains)
    found = table.summary(outcomes)
    sys.stdout.write(", ".join(f"{name} {value:.3f}" for name, value in found.items()) + "\n")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _conditions(profile: Path, load: float, seconds: float, outcomes: Sequence[Outcome]) -> str:
    identity = fingerprint(profile)["identity"]
    device = f"{identity['num_devices']} × {identity['device_type']} ({identity['device_name']})"
    told = [
        f"{device}, torch {identity['torch']}",
        f"load {load:.1f} when it began",
        f"{_iterations(outcomes)} iterations of each plan after one that warms up",
        f"{seconds / 60:.0f} min in this call, which keeps runs that are there",
        *disturbances(profile),
    ]
    return "; ".join(told) + "."


def _iterations(outcomes: Sequence[Outcome]) -> str:
    """Of runs in this call and earlier ones."""
    counts = sorted({each.num_iterations for each in outcomes})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


if __name__ == "__main__":
    main()
