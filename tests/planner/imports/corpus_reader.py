"""Launches of the corpus as tests change them, and how they are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap.planner import NotImportableError
from automap.planner.imports.importing import import_launch
from automap.planner.imports.launch import Answers, Imported, LaunchFile
from automap.planner.spec import LengthSpec
from automap.service.schemas.document_lines import key_lines
from benchmarks.imports import WANTED, imported
from benchmarks.launch_corpus import corpus


@dataclass(frozen=True)
class Corpus:
    """The launches of one framework."""

    target: str
    folder: Path
    ending: str = ""
    """Of the names of its files; empty: tests say them whole."""
    mean: float = 300.0
    """Tokens of a prompt, and of a response."""

    @property
    def lengths(self) -> dict[str, Any]:
        fields = {**dict.fromkeys(LengthSpec.model_fields), "mean": self.mean}
        mean = LengthSpec.model_construct(None, **fields)
        return {"prompt_length": mean, "response_length": mean}

    def launch(self, name: str, *changes: tuple[str, str]) -> LaunchFile:
        """A file of the corpus, with some of its text changed."""
        path = self.folder / f"{name}{self.ending}"
        text = path.read_text(encoding="utf-8")
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        return LaunchFile(path.name, text) if path.suffix != ".yaml" else document(text, path.name)

    def read(self, *files: LaunchFile, values: dict[str, str] | None = None) -> Imported:
        return import_launch(files, self.target, Answers("h100", values or {}, **self.lengths))

    def refused(self, *files: LaunchFile, target: str = "") -> list[str]:
        """Why they are not read, each reason with its remedy."""
        with pytest.raises(NotImportableError) as error:
            import_launch(files, target or self.target, Answers("h100", **self.lengths))
        return [f"{reason.summary} ({reason.remedy})" for reason in error.value.reasons]

    def helped(self) -> dict[str, Imported]:
        """All launches, of which nine in ten are read without the help that the others name."""
        launches = corpus(self.target.partition("@")[0])
        assert len(launches) >= 20
        alone = [isinstance(imported(each, target=self.target), Imported) for each in launches]
        assert sum(alone) / len(alone) >= WANTED
        found = {each.name: imported(each, each.help, self.target) for each in launches}
        assert [name for name, each in found.items() if isinstance(each, list)] == []
        return {name: each for name, each in found.items() if isinstance(each, Imported)}


def document(text: str, name: str = "a.yaml") -> LaunchFile:
    """A configuration as the command line reads it."""
    return LaunchFile(name, document=yaml.safe_load(text), lines=key_lines(text))
