"""Do runs learn? Reward of the untrained policy against that of the last iterations, over seeds.

    python -m benchmarks.learning                      # all tiny examples, seeds 0, 1, 2
    python -m benchmarks.learning --examples grpo --seeds 5

Each run is `python -m automap.executor.run` on this machine, from plan to saved weights.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from statistics import mean, stdev

from automap.executor.settings import RunSettings
from automap.planner.plan.types import Plan
from benchmarks.tiny_jobs import EXAMPLES, tiny_job

NAMES = ("ppo", "grpo", "remax", "safe-rlhf")
FIRST, LAST = 2, 5
"""Iterations whose mean counts as untrained, and as trained."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One run."""

    seed: int
    scores: list[float]
    """Mean reward of every iteration, without the KL penalty."""

    @property
    def gain(self) -> float:
        """Trained less untrained."""
        return mean(self.scores[-LAST:]) - mean(self.scores[:FIRST])


def learn(name: str, *, seed: int, folder: Path) -> Curve:
    """Plan and run an example; RuntimeError with the end of its log if it fails."""
    metrics = metrics_of(*tiny_job(name, seed=seed), folder=folder)
    return Curve(seed, [each["critic/score/mean"] for each in metrics])


def metrics_of(plan: Plan, settings: RunSettings, *, folder: Path) -> list[dict[str, float]]:
    """Run a plan; the metrics of every iteration. RuntimeError as `learn`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(plan.model_dump_json(by_alias=True))
    (folder / "settings.json").write_text(settings.model_dump_json())
    with (folder / "run.log").open("wb") as log:
        arguments = ["--plan", folder / "plan.json", "--settings", folder / "settings.json"]
        code = subprocess.call(
            [sys.executable, "-m", "automap.executor.run", *arguments, "--output", folder],
            stdout=log,
            stderr=log,
            cwd=EXAMPLES.parent,
        )
    if code != 0:
        raise RuntimeError(f"exit code {code}: {(folder / 'run.log').read_text()[-4000:]}")
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["data"] for line in lines]


def t_statistic(gains: Sequence[float]) -> float:
    """Of the gains' mean against 0: above 2.92 one is positive at 5 % with three seeds."""
    spread = stdev(gains) / sqrt(len(gains))
    return mean(gains) / spread if spread else inf


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--examples", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name in given.examples:
            curves = []
            for seed in range(given.seeds):
                curves.append(learn(name, seed=seed, folder=Path(folder) / f"{name}-{seed}"))
                scores = curves[-1].scores
                steps = range(0, len(scores), max(1, len(scores) // 8))
                shown = " ".join(f"{step + 1}:{scores[step]:.2f}" for step in steps)
                print(f"{name:10} seed {seed}: {shown} … {scores[-1]:.2f}", flush=True)
            gains = [curve.gain for curve in curves]
            print(f"{name:10} gain {mean(gains):.3f} (least {min(gains):.3f})", end="")
            print(f", t = {t_statistic(gains):.1f}" if len(gains) > 1 else "")


if __name__ == "__main__":
    main()
