"""Write a tiny model and prompts of a task: `python -m automap.executor.tiny --output DIR`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from automap.executor.tiny.tasks import TaskName, write_prompts
from automap.executor.tiny.tiny_model import write_tiny_model


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes DIR/model and DIR/prompts.jsonl, and says so."""
    parser = argparse.ArgumentParser(prog="python -m automap.executor.tiny", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--task", choices=get_args(TaskName), default="count_token")
    parser.add_argument("--num-prompts", type=int, default=1024)
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    model, prompts = given.output / "model", given.output / "prompts.jsonl"
    given.output.mkdir(parents=True, exist_ok=True)
    write_tiny_model(model, seed=given.seed, num_layers=given.num_layers)
    write_prompts(prompts, task=given.task, num_prompts=given.num_prompts, seed=given.seed)
    sys.stdout.write(
        f"model: {model}\nprompts: {prompts}\nreward: automap.executor.tiny.tasks:{given.task}\n"
    )


if __name__ == "__main__":
    main()
