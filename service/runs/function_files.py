"""Reward functions in files that can be seen from here, read and never run.

What only running the file would tell (a name that it makes up as it goes, a decorator that changes
parameters) is left to the run, which imports every function before its workers start.
"""

import ast
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

import automap
from automap.executor.settings import RunSettings
from automap.service.errors.fields import FieldError, shown

MOST_BYTES = 2**20
"""A larger file is left to the run."""
_OURS = "automap."
_DYNAMIC = frozenset(
    {"__getattr__", "globals", "locals", "vars", "setattr", "exec", "eval", "modules", "__dict__"}
)
"""What a file names that may make names of its own."""
_MOST_NAMES = 10
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_errors(settings: RunSettings, *, files: bool = True) -> Iterator[FieldError]:
    """Functions that are not where the settings say, or that want what rows do not give.

    Args:
        settings: With absolute paths.
        files: Whether files here are those of the machines that run the job; modules of Automap
            are, in any case.
    """
    for role, given in settings.functions.items():
        place, _, name = given.path.rpartition(":")
        file = _file_of(place, files=files)
        tree = None if file is None else _parsed(file)
        if tree is None:
            continue
        # Only a program of one's own may give its functions something else.
        keywords = settings.data.function_keywords() if settings.program is None else None
        if wrong := _wrong(tree, name, keywords):
            message, remedy = wrong
            yield FieldError(
                field=f"functions.{role}.path",
                value=shown(given.path),
                message=message,
                remedy=remedy,
            )


def _file_of(place: str, *, files: bool) -> Path | None:
    if place.endswith(".py"):
        return Path(place) if files else None
    if not place.startswith(_OURS):
        return None  # of the Python path of another machine, perhaps
    # Found without importlib, which would import the packages around it: torch, for some.
    return Path(automap.__path__[0], *place.split(".")[1:]).with_suffix(".py")


def _parsed(file: Path) -> ast.Module | None:
    """What is in the file; None: it is not here, or of another Python than this one."""
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            return None
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _wrong(tree: ast.Module, name: str, keywords: Sequence[str] | None) -> tuple[str, str] | None:
    """What is wrong with the function, and what would do; None: nothing that can be seen."""
    bound = list(_bound(tree.body))
    found = [what for each, what in bound if each == name]
    if not found:
        if _is_dynamic(tree):
            return None
        there = [each for each, what in bound if isinstance(what, _Function)]
        return f"there is no function {name} in it", _instead(there, name)
    function = found[0]
    if keywords is None or len(found) > 1 or not isinstance(function, _Function):
        return None
    if function.decorator_list:
        return None
    missing = [each for each in _needed(function.args) if each not in keywords]
    if not missing:
        return None
    return (
        f"{name} wants {', '.join(missing)}; there are {', '.join(keywords)}",
        "take one of these, or have a default; answers need data.answer_column, prompts and "
        "responses need data.tokenizer",
    )


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """The names that a module's statements bind, each with the statement that does."""
    for statement in body:
        if isinstance(statement, _Function | ast.ClassDef):
            yield statement.name, statement
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                yield (alias.asname or alias.name).partition(".")[0], statement
        for each in _of_this_scope(statement):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id, statement
            elif isinstance(each, ast.stmt) and each is not statement:
                yield from _bound([each])


def _of_this_scope(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement, and of these the parts, down to statements within it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        part = waiting.pop()
        yield part
        if part is statement or not isinstance(part, ast.stmt):
            waiting.extend(ast.iter_child_nodes(part))


def _is_dynamic(tree: ast.Module) -> bool:
    """Whether names may come from where this cannot see."""
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and any(alias.name == "*" for alias in each.names):
            return True
        if isinstance(each, ast.Name | ast.FunctionDef):
            named = each.id if isinstance(each, ast.Name) else each.name
            if named in _DYNAMIC:
                return True
        if isinstance(each, ast.Attribute) and each.attr in _DYNAMIC:
            return True
        if isinstance(each, ast.Global | ast.Match):
            return True
    return False


def _needed(arguments: ast.arguments) -> list[str]:
    """Parameters without a default that are given by their names."""
    positional = [*arguments.posonlyargs, *arguments.args]
    without = positional[: len(positional) - len(arguments.defaults)]
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    needed = [each for each, default in by_name if default is None]
    return [each.arg for each in [*without, *needed]]


def _instead(functions: Sequence[str], name: str) -> str:
    public = [each for each in functions if not each.startswith("_")]
    near = difflib.get_close_matches(name, public, n=3)
    listed = list(dict.fromkeys([*near, *public]))[:_MOST_NAMES]
    return f"use {', '.join(listed)}" if listed else f"define {name} in it"
