"""The language of the code is that of the glossary: what was retired does not come back."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.documents import ROOT

RETIRED_NAMES = Path(__file__).parent / "retired_names.txt"
ROOMS = ("planner", "profiler", "executor", "service")
CANNOT_BE_READ_ALONE = ("Of ", "The same", "As ", "Those ", "That ", "Than ", "None:")


def retired_names() -> list[str]:
    lines = RETIRED_NAMES.read_text().splitlines()
    return [line.partition(" = ")[0] for line in lines if line and not line.startswith("#")]


def words(identifier: str) -> str:
    """Its words in lower case with a space around each: `_CostEngines` → " cost engines "."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier)
    return f" {apart.strip('_').lower().replace('_', ' ')} "


def pattern_of(*names: str) -> re.Pattern[str]:
    return re.compile(rf" (?:{'|'.join(map(re.escape, names))})(?:s|es)? ")


@cache
def has_retired_name(identifier: str) -> bool:
    return all_retired().search(words(identifier)) is not None


@cache
def all_retired() -> re.Pattern[str]:
    return pattern_of(*retired_names())


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name that the code itself gives or uses; nothing inside strings."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.Attribute(attr=name):
                yield name


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Of modules, classes and functions, and the strings below fields and constants."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else []:
            match one:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_no_retired_name_is_used(room: str) -> None:
    found = set()
    for path in files(room):
        used = {path.stem, *identifiers(ast.parse(path.read_text()))}
        found |= {f"{path.relative_to(ROOT)}: {name}" for name in used if has_retired_name(name)}
    assert not found


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_can_be_read_alone(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in files(room)
        for docstring in docstrings(ast.parse(path.read_text()))
        if docstring.startswith(CANNOT_BE_READ_ALONE)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("identifier", "retired", "found"),
    [
        ("CostEngine", "cost engine", True),
        ("_cost_engines_of", "cost engine", True),
        ("cost_of_engine", "cost engine", False),
        ("settled", "settle", False),
        ("PRICE_HORIZON", "horizon", True),
    ],
)
def test_a_name_is_matched_by_its_words(identifier: str, retired: str, found: bool) -> None:
    assert (pattern_of(retired).search(words(identifier)) is not None) is found
