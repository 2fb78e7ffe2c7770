"""Plans made and run, as a user would: `automap run PLAN`, and the report that it leaves."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automap.executor.telemetry.run_report import RunReport
from automap.planner.errors import InfeasibleError
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from benchmarks.loop.jobs import Sizes, Variant, settings_of, spec_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan and what its run measured."""

    variant: Variant
    plan: Plan
    report: RunReport

    @property
    def measured(self) -> float:
        """Median seconds of an iteration."""
        found = self.report.iteration_seconds.measured
        assert found is not None, "a run of the loop has iterations after its warm-up"
        return found.median

    @property
    def num_iterations(self) -> int:
        """Measured after the warm-up."""
        found = self.report.iteration_seconds.measured
        return 0 if found is None else found.count

    def predicted(self, call: str) -> float | None:
        """Seconds of a call by the plan; None: it knows of none."""
        found = [each for each in self.plan.calls if each.id == call]
        return found[0].end_seconds - found[0].start_seconds if found else None


def planned(
    variants: tuple[Variant, ...], sizes: Sizes, pool: dict[str, Any]
) -> list[tuple[Variant, Plan]]:
    """The plan of each variant; of equal placements the first, and none that does not fit."""
    plans: list[tuple[Variant, Plan]] = []
    for variant in variants:
        try:
            plan = make_plan(spec_of(variant, sizes, pool))
        except InfeasibleError as error:
            sys.stderr.write(f"{variant.name}: left out, {error}\n")
            continue
        same = [
            other.name
            for other, known in plans
            if other.stack == variant.stack and known.placement() == plan.placement()
        ]
        if same:
            sys.stderr.write(f"{variant.name}: the same as {same[0]}\n")
            continue
        plans.append((variant, plan))
    return plans


def run(variant: Variant, plan: Plan, sizes: Sizes, folder: Path, *, iterations: int) -> Outcome:
    """Run a plan in a folder of its own, unless a run of this placement is done there."""
    output = folder / variant.name.replace(" ", "-").replace(",", "")
    report = _report_of(output, plan)
    if report is None:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
        settings = settings_of(variant, sizes, folder, iterations=iterations)
        for name, document in {"plan": plan, "settings": settings}.items():
            text = document.model_dump_json(by_alias=True)
            (output / f"given-{name}.json").write_text(text)
        command = [
            *(
                sys.executable,
                "-m",
                "automap.service.cli.main",
                "run",
                str(output / "given-plan.json"),
            ),
            *("--settings", str(output / "given-settings.json")),
            *("--output", str(output), "--quiet"),
        ]
        # Ray's workers give way to everything else on a machine, unless they are told not to.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        report = _report_of(output, plan)
        assert report is not None, f"automap run has left no whole report in {output}"
    return Outcome(variant, plan, report)


def _report_of(output: Path, plan: Plan) -> RunReport | None:
    """Of a run of the same placement that has succeeded; None where there is none."""
    if not (output / "report.json").exists():
        return None
    report = RunReport.model_validate_json((output / "report.json").read_text())
    before = Plan.model_validate_json((output / "plan.json").read_text())
    same = before.placement() == plan.placement()
    return report if same and report.outcome.state == "succeeded" else None
