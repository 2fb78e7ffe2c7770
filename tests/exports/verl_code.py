"""verl itself, as a process of the environment that `make test-exports` builds."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("EXPORTS_VENV", str(ROOT / ".venv-exports"))) / "bin" / "python"
MISSING = "" if PYTHON.exists() else f"no {PYTHON.parent.parent.name}: make test-exports builds it"
"""Why verl cannot be asked; empty: it can."""


def verdicts(overrides: Mapping[str, Iterable[str]]) -> dict[str, dict[str, Any]]:
    """What verl makes of launches, by their names; one process for all of them."""
    cases = [{"id": name, "overrides": list(given)} for name, given in overrides.items()]
    environment = {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("accept_verl.py"))],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer.pop("id"): answer for answer in answers}
