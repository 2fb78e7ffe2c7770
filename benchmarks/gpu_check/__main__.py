"""What only a GPU can show, in under ten minutes: kernels, engines, memory, transfer, the loop.

    python -m benchmarks.gpu_check [--on cuda|cpu] [--only PART …] [--report FILE]

Each part runs in a process of its own, so that one that dies takes no other along. On a GPU the
report is written to docs/internals/gpu_check.md; parts that need what is not here are named there
as not run. `--on cpu` rehearses: the same code on cores, with a tiny model, and no report.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_check import report
from benchmarks.gpu_check.findings import Finding, read
from benchmarks.gpu_check.parts import PARTS, Part

REPORT = Path("docs/internals/gpu_check.md")
MOST_SECONDS = 600.0
"""Of all parts together; what is left bounds each of them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts; 1 if any failed, 2 where there is no GPU and none was waived."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check")
    parser.add_argument("--on", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    parser.add_argument("--report", type=Path, help=f"default on a GPU: {REPORT}")
    given = parser.parse_args(arguments)
    if given.on == "cuda" and not _has_gpu():
        sys.stderr.write("no GPU is here that torch can use; --on cpu rehearses on its cores\n")
        return 2
    began = time.monotonic()
    findings = []
    for part in PARTS:
        if given.only and part.name not in given.only:
            continue
        left = MOST_SECONDS - (time.monotonic() - began)
        findings.append(_run(part, given.on, min(part.most_seconds, left)))
        sys.stdout.write(report.line(findings[-1]) + "\n")
        sys.stdout.flush()
    path = given.report or (REPORT if given.on == "cuda" and not given.only else None)
    if path is not None:
        page = report.page(findings, given.on, time.monotonic() - began)
        path.write_text(page, encoding="utf-8")
        sys.stdout.write(f"written to {path}\n")
    return int(any(each.state == "failed" for each in findings))


def _run(part: Part, kind: str, most_seconds: float) -> Finding:
    if most_seconds <= 0:
        return Finding(part.name, "not run", f"the {MOST_SECONDS:.0f} s were over")
    command = [sys.executable, "-m", "benchmarks.gpu_check.part", part.name, "--on", kind]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=most_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"not done after {most_seconds:.0f} s"
        return Finding(part.name, "failed", reason, time.monotonic() - began)
    found = read(done.stdout)
    if found is not None:
        return found
    reason = f"its process ended with exit code {done.returncode}"
    return Finding(part.name, "failed", reason, time.monotonic() - began)


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


if __name__ == "__main__":
    sys.exit(main())
