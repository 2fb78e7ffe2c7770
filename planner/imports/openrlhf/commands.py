"""The commands that start OpenRLHF's trainer."""

from automap.planner.imports.shell.values import Field
from automap.planner.imports.shell.walk import Reading, Started

MODULE, FILE = "openrlhf.cli.train_ppo_ray", "openrlhf/cli/train_ppo_ray.py"


def jobs_of(reading: Reading) -> list[tuple[Started, int]]:
    """Commands that start it, and the number of the word that names the program."""
    found = []
    for command in reading.commands:
        place = next((n for n, word in enumerate(command.words) if _is_program(word)), None)
        if place:
            found.append((command, place))
    return found


def _is_program(word: Field) -> bool:
    return word.shown == MODULE or word.shown.endswith(FILE)
