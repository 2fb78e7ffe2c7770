"""Commands of `automap` as the tests give them, and specs that they are given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from automap.service.cli.main import main

ROOT = Path(__file__).parents[2]
# A file, and two texts.
TINY = str(ROOT / "examples" / "tiny-ppo-cpu.yaml")
TOO_LARGE = (
    (ROOT / "examples" / "hybridflow-ppo-7b-16xa100.yaml")
    .read_text(encoding="utf-8")
    .replace("llama-2-7b", "llama-3.1-405b")
    .replace("num_nodes: 2", "num_nodes: 1")
)

TWO_NODES = """
name: small
algorithm: rloo
models:
  actor: {architecture: qwen2.5-0.5b}
  reward: {function: true}
workload:
  prompts_per_iteration: 64
  responses_per_prompt: 4
  prompt_length: {mean: 512, max: 512}
  response_length: {mean: 512, max: 1024}
  kl: none
  old_log_probs: rollout
cluster:
  pools: [{name: a100, gpu: a100, num_nodes: 2, gpus_per_node: 2, price_per_gpu_hour: 2.0}]
"""


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`automap …` in a fresh process, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "automap.service.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `automap …` in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


def jobs(*arguments: str, server: str) -> subprocess.Popen[str]:
    """A command about jobs of a server, not waited for."""
    return subprocess.Popen(
        [sys.executable, "-m", "automap.service.cli.main", *arguments, "--server", server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
