"""What docs/executor.md and the examples show of the executor runs as it stands."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from automap.executor.errors import RunError
from automap.executor.runtime.runnable import check_run
from automap.executor.settings import RunSettings
from automap.planner.errors import SpecError
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.service.cli.inputs.files import read_run_settings, read_spec
from tests.docs.documents import ROOT, Block, python_blocks

pytestmark = pytest.mark.many_processes

BLOCKS = [each for each in python_blocks("executor.md") if not each.file and each.needs_executor]
HALF = 131_392 // 2
"""Parameters of tiny-llama, over two data ranks."""
OWN = str(ROOT / "examples" / "tiny-own-algorithm-cpu.yaml")


def names_of(block: Block) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block.code, str(block), "exec"), names)
    return names


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(read_spec(OWN))


@pytest.fixture(scope="module")
def settings(plan: Plan) -> RunSettings:
    return read_run_settings(None, beside=OWN, spec=plan.spec)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names_of(block)


def test_the_own_program_fits_its_plan(plan: Plan, settings: RunSettings) -> None:
    assert set(check_run(plan, settings)) == {"actor"}


def test_a_plan_of_another_program_is_refused(plan: Plan, settings: RunSettings) -> None:
    none = settings.model_copy(update={"program": None})
    with pytest.raises(RunError, match="program: the plan is of an explicit dataflow"):
        check_run(plan, none)
    other = settings.model_copy(
        update={"program": "automap.planner.dataflow.algorithms.remax:PROGRAM"}
    )
    with pytest.raises(SpecError, match=r"the dataflow lacks the call \{id: actor.generate.greedy"):
        check_run(plan, other)
    grpo = read_spec(str(ROOT / "examples" / "tiny-grpo-cpu.yaml"))
    with pytest.raises(RunError, match="is given, but the plan is of grpo"):
        check_run(make_plan(grpo), settings)


@pytest.mark.slow
def test_the_own_worker_method_runs() -> None:
    done = _ran(sys.executable, "examples/own_worker_method.py")
    assert "tokens: 14, ranks: [6, 6, 6, 6]" in done.stdout


@pytest.mark.slow
def test_the_own_algorithm_runs(tmp_path: Path) -> None:
    """The same file from the command line: planned, traced again, run."""
    run = "from automap.service.cli.main import main; main()"
    output = tmp_path / "run"
    _ran(sys.executable, "-c", run, "run", OWN, "--output", str(output), "--quiet")
    report = json.loads((output / "report.json").read_text())
    assert report["outcome"]["state"] == "succeeded"
    last = (output / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["step"] == 3
    assert (output / "actor" / "model.safetensors").is_file()


@pytest.mark.slow
def test_own_workers_and_prompts_run(plan: Plan, settings: RunSettings) -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        names |= names_of(block)
    once = settings.model_copy(update={"iterations": 1})
    assert names["run"](plan, once, names["CountingPrompts"]()) == [HALF, HALF]


def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
