"""Dockerfiles as instructions, and what they and their like may say of the service."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from automap.service.settings import SECRETS_FOLDER, Settings

ROOT = Path(__file__).parents[2]
FILES = ("Dockerfile", "Dockerfile.executor")
USER = 10001
PREFIX = "AUTOMAP_"
VARIABLES = {PREFIX + name.upper() for name in Settings.model_fields} | {SECRETS_FOLDER}
"""What the service reads from its environment."""
SECRETS = {f"{PREFIX}{name}".lower() for name in Settings.model_fields}
"""What it reads from the folder of secrets."""


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of the form that is JSON."""
        return [str(word) for word in json.loads(self.text)]


def instructions(file: str) -> list[Instruction]:
    lines = (ROOT / file).read_text().splitlines()
    kept = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", "", kept)
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name, text) for name, text in found]


def last(file: str, name: str) -> str:
    """Of the image that is made in the end."""
    return next(each.text for each in reversed(instructions(file)) if each.name == name)
