"""The machine that the loop runs on, measured."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.loop.jobs import Sizes


def profiled(work: Path, sizes: Sizes, budget: float) -> Path:
    """A profile of this machine, with the shapes of the job's model: the folder that has it.

    Raises:
        CalledProcessError: it could not be measured.
    """
    from automap.executor.engines.random_model import config_of

    folder, model = work / "profile", work / "model"
    config_of(sizes.architecture).save_pretrained(model)
    command = [
        *(sys.executable, "-m", "automap.service.cli.main", "profile", "--quiet"),
        *("--models", f"{model.absolute()}/config.json"),
        *("--budget", str(budget), "--ranks", "2", "--output", str(folder)),
    ]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return folder
