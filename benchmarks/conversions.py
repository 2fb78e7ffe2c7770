"""Of the launches of benchmarks.launch_corpus, how many are launches of another framework too.

    python -m benchmarks.conversions [--from openrlhf@0.11.2] [--to verl@0.9.1]

Every launch is given a GPU type, lengths and the options that its file names, and is converted as
by `automap convert`. What is kept of each is printed, then how many are converted as they are, with
all of their sizes, with some of them, and not at all. Searches of the whole job, where nothing can
be kept, are made as well.
"""

import argparse
import time
from collections import Counter

from rich.console import Console

from automap import estimate, export, make_plan
from automap.planner import Imported
from automap.planner.errors import (
    InfeasibleError,
    NoSolutionInTimeError,
    NotExportableError,
    SpecError,
)
from automap.planner.frameworks import framework_names
from automap.planner.studies import EVERYTHING, inside_another, most_kept, put_back
from benchmarks.imports import imported
from benchmarks.launch_corpus import Written, corpus

OUTRIGHT, ALL, SOME = "as they are", "with all sizes and batches", "with some of them"
ANEW, NONE = "planned anew", "not"
OUTCOMES = (OUTRIGHT, ALL, SOME, ANEW, NONE)
BESIDE = 2
"""Of everything, what no constraint fixes: cache and offload come last."""


def converted(written: Written, source: str, target: str) -> tuple[str, str]:
    """(what becomes of a launch, what is let go of it or why it is not converted)."""
    found = imported(written, written.help, source)
    if not isinstance(found, Imported):
        return NONE, "; ".join(found)
    try:
        export(estimate(found.spec, found.placement), target)
    except NotExportableError:
        return _nearest(found, target)
    except (InfeasibleError, SpecError) as error:
        return NONE, f"cannot be priced: {error}"
    return OUTRIGHT, ""


def _nearest(found: Imported, target: str) -> tuple[str, str]:
    try:
        kept = most_kept(inside_another(found.spec, target), found.placement, target)
        plan = make_plan(kept.spec)
        if not kept.what:
            export(plan, target)
            return ANEW, ""
        beside = put_back(plan, found.placement, target, estimate)[2]
    except (InfeasibleError, NoSolutionInTimeError, NotExportableError, SpecError) as error:
        return NONE, str(error)
    let_go = [each for each in EVERYTHING if each not in (*kept.what, *beside)]
    whole = all(each in kept.what for each in EVERYTHING[:-BESIDE])
    return ALL if whole else SOME, f"let go: {', '.join(let_go)}" if let_go else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", default="openrlhf@0.11.2")
    parser.add_argument("--to", dest="target", default="verl@0.9.1")
    given = parser.parse_args()
    for option, name in (("--from", given.source), ("--to", given.target)):
        if name not in framework_names():
            parser.error(f"{option} is {name!r}; known: {', '.join(framework_names())}")
    console = Console(highlight=False, width=160)
    launches, counts = corpus(given.source.partition("@")[0]), Counter[str]()
    began = time.perf_counter()
    for each in launches:
        outcome, told = converted(each, given.source, given.target)
        counts[outcome] += 1
        console.print(f"{each.name}: {outcome}{f' ({told})' if told else ''}", markup=False)
    figures = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    seconds = (time.perf_counter() - began) / len(launches)
    console.print(
        f"{len(launches)} launches of {given.source} to {given.target}: {figures}; "
        f"{seconds:.1f} s each"
    )


if __name__ == "__main__":
    main()
