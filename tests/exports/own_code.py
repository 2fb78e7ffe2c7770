"""The frameworks themselves, as processes of the environment that `make test-exports` builds."""

import atexit
import functools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("EXPORTS_VENV", str(ROOT / ".venv-exports"))) / "bin" / "python"
MISSING = "" if PYTHON.exists() else f"no {PYTHON.parent.parent.name}: make test-exports builds it"
"""Why no framework can be asked; empty: each can."""


class OwnCode:
    """A program that imports a framework, which takes seconds, and then judges case by case."""

    def __init__(self, program: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        home = os.environ.get("HOME", "/")
        self._process = subprocess.Popen(
            [str(PYTHON), str(Path(__file__).with_name(program))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={"PATH": os.defpath, "HOME": home, "OMP_NUM_THREADS": "1"},
        )
        atexit.register(self._process.kill)

    def verdicts(self, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """What the framework makes of each case, by its name."""
        lines = [json.dumps({**case, "id": name}) for name, case in cases.items()]
        writer = threading.Thread(target=self._write, args=("\n".join([*lines, ""]).encode(),))
        writer.start()
        found: dict[str, dict[str, Any]] = {}
        assert self._process.stdout is not None
        while len(found) < len(cases):
            line = self._process.stdout.readline()
            assert line, self._last_said()
            if line.startswith(b'{"id"'):  # frameworks print as well
                verdict = json.loads(line)
                found[verdict.pop("id")] = verdict
        writer.join()
        return found

    def _write(self, text: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def _last_said(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:].decode(errors="replace")


own_code = functools.cache(OwnCode)
"""The process of a program, one for all tests of this process."""
