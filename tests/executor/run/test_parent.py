"""A program ends when its standard input does, also where there is none."""

import subprocess
import sys

import pytest

PROGRAM = (
    "import os, time; from automap.executor.run.parent import when_stdin_closes\n"
    "when_stdin_closes(lambda: os._exit(3)); time.sleep(60)"
)


@pytest.mark.parametrize("stdin", ["</dev/null", "0>/dev/null", "<&-"])
def test_a_program_ends_with_its_input_however_that_ended(stdin: str) -> None:
    command = f'exec "$0" -c "$1" {stdin}'
    done = subprocess.run(["sh", "-c", command, sys.executable, PROGRAM], timeout=30, check=False)
    assert done.returncode == 3
