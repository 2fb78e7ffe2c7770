"""Predict what the papers measured, and write docs/internals/reproduction.md with its pictures.

    python -m benchmarks.reproduction [--only STUDY …] [--workers 2] [--output docs/internals]

`make reproduce` runs all studies. With --only the named ones are run and printed; nothing is
written, because the document is always of one run.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.progress import track

from benchmarks.reproduction.cases import Case, Outcome, outcomes
from benchmarks.reproduction.document import STUDIES, document, section
from benchmarks.reproduction.study import Key, Report, Study

DOCS = Path(__file__).parent.parent.parent / "docs" / "internals"


def run(studies: Sequence[Study], workers: int) -> dict[str, Report]:
    """All cases of the studies, side by side, and what each study makes of its own."""
    numbered = [(study.name, key, case) for study in studies for key, case in study.cases.items()]
    # The longest first, so that no worker ends with one alone.
    order = sorted(numbered, key=lambda each: -_num_gpus(each[2]))
    found: dict[tuple[str, Key], dict[str, Outcome]] = {}
    with ProcessPoolExecutor(workers) as pool:
        placed = pool.map(outcomes, [case for *_, case in order])
        for (name, key, _), outcome in zip(
            order, track(placed, "placing jobs", total=len(order)), strict=True
        ):
            found[name, key] = outcome
    return {
        study.name: study.report({key: found[study.name, key] for key in study.cases})
        for study in studies
    }


def _num_gpus(case: Case) -> int:
    cluster = case.spec.cluster
    assert not isinstance(cluster, str)
    return sum(pool.num_nodes * (pool.gpus_per_node or 1) for pool in cluster.pools)


def write(reports: dict[str, Report], folder: Path, studies: Sequence[Study] = STUDIES) -> None:
    """The document and its pictures; pictures of earlier runs go."""
    text = document(
        reports, studies
    )  # before anything is touched, so that a failure leaves all as it was
    pictures = folder / "reproduction"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    for report in reports.values():
        for name, svg in report.pictures.items():
            (pictures / name).write_text(svg)
    (folder / "reproduction.md").write_text(text)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [study.name for study in STUDIES]
    parser.add_argument("--only", action="append", choices=names, metavar="STUDY")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path, default=DOCS)
    given = parser.parse_args()
    started = time.perf_counter()
    studies = [study for study in STUDIES if given.only is None or study.name in given.only]
    reports = run(studies, given.workers)
    if given.only is None:
        write(reports, given.output)
    else:
        for study in studies:
            print(section(study, reports[study.name]))
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
