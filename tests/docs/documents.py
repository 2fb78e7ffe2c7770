"""What is in README.md and docs/: links, commands, and blocks of Python."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from docs.generate.reference import GENERATED

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "benchmarks/README.md", *ROOT.glob("docs/**/*.md")])

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_ROOMS = (
    "automap|planner|profiler|executor|service|tests|examples|benchmarks|migrations|requirements"
)
_NEEDS_EXECUTOR = re.compile(
    r"^(?:import|from) (?:ray|torch|automap\.executor\.(?!workers\.protocols|layout))", re.M
)


@dataclass(frozen=True)
class Block:
    """A fenced block of Python."""

    document: str
    number: int
    code: str

    def __str__(self) -> str:
        return f"{self.document}-{self.number}"

    @property
    def file(self) -> str | None:
        """The file that it is a part of, if it says so in its first line."""
        found = re.match(r"# (\S+\.py)\n", self.code)
        return found and found[1]

    @property
    def part(self) -> str:
        return self.code.partition("\n")[2]

    @property
    def needs_executor(self) -> bool:
        return _NEEDS_EXECUTOR.search(self.code) is not None


def files_named(document: Path) -> set[str]:
    """`planner/plan/types.py` and the like: files and folders of the repository, in code."""
    text = _FENCED.sub("", document.read_text())
    return set(re.findall(rf"`((?:{_ROOMS})/[\w./-]*)`", text))


def symbols_named(document: Path) -> set[tuple[str, str]]:
    """File and name of every "`planner/planning.py` · `make_plan`, `estimate`"."""
    text = " ".join(document.read_text().split())
    found = re.findall(r"`([\w/]+\.py)` · ((?:`[\w.]+`(?:, )?)+)", text)
    return {(file, name) for file, names in found for name in re.findall(r"`([\w.]+)`", names)}


def python_blocks(*names: str) -> list[Block]:
    """Of the named files of docs/."""
    return [
        Block(name, number, block[2])
        for name in names
        for number, block in enumerate(_fenced(ROOT / "docs" / name, "python"), start=1)
    ]


def readme_blocks() -> list[str]:
    """The blocks of Python in README.md."""
    return [block[2] for block in _fenced(ROOT / "README.md", "python")]


def links(document: Path) -> list[str]:
    """Relative ones with their anchors, and pictures."""
    text = _FENCED.sub("", document.read_text())
    return [link for link in _LINK.findall(text) if "://" not in link]


def is_generated(target: Path) -> bool:
    """Whether a page of the reference is written by `make docs`, and in no checkout."""
    return target.parent == ROOT / "docs" / "reference" and target.name in GENERATED


def anchors(document: Path) -> set[str]:
    """What a link can point to, as GitHub names headings."""
    text = _FENCED.sub("", document.read_text())
    headings = (heading.replace("`", "").lower() for heading in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}


def commands(document: Path) -> list[list[str]]:
    """Every `automap …` of a block: its arguments."""
    text = document.read_text()
    shell = [block[2] for block in _FENCED.finditer(text) if block[1] in ("sh", "bash", "")]
    indented = _INDENTED.findall(_FENCED.sub("", text))
    return _commands_in("\n".join([*shell, *indented]).splitlines())


def mentions(document: Path) -> list[list[str]]:
    """Every `automap …` inside a sentence or a table, which may leave arguments out."""
    text = _INDENTED.sub("\n", _FENCED.sub("", document.read_text()))
    return _commands_in(" ".join(code.split()) for code in _INLINE.findall(text))


def _fenced(document: Path, language: str) -> list[re.Match[str]]:
    return [block for block in _FENCED.finditer(document.read_text()) if block[1] == language]


def _commands_in(lines: Iterable[str]) -> list[list[str]]:
    stripped = (line.strip() for line in lines)
    return [_arguments(line) for line in stripped if re.match(r"automap [a-z-]", line)]


def _arguments(command: str) -> list[str]:
    plain = command.replace(r"\|", "|").translate(str.maketrans("", "", "[]…"))
    return shlex.split(plain, comments=True)[1:]
