"""Python programs that make a trainer's arguments themselves: what they say in plain values."""

import ast
from collections.abc import Iterator, Mapping

from automap.planner.imports.given import Given, Overrides
from automap.planner.imports.launch import LaunchFile
from automap.planner.imports.shell.values import Unknown

CONFIGS = {"GRPOConfig": "grpo", "RLOOConfig": "rloo"}
"""Class of arguments → the trainer's algorithm."""
TRAINERS = {"GRPOTrainer": "grpo", "RLOOTrainer": "rloo"}
MODEL = "--model_name_or_path"


def is_program(file: LaunchFile) -> bool:
    """Whether a file is Python, and no shell script."""
    return bool(file.text) and file.name.endswith(".py")


def algorithm_in(file: LaunchFile) -> str:
    """The algorithm of the trainer that a program makes; empty: it makes none."""
    names = {_name(each.func) for each in _calls(file)}
    return next((to for name, to in (CONFIGS | TRAINERS).items() if name in names), "")


def settings_in(file: LaunchFile, found: Overrides) -> None:
    """Set what the calls of a trainer and its arguments have as plain values."""
    tree = _tree(file)
    if tree is None:
        told = f"{file.name} is no Python that is read here"
        found.remark("not read", told, Given("", "", file.name, 1))
        return
    known = _constants(tree)
    for call in _calls(file):
        name = _name(call.func)
        for keyword in call.keywords if name in CONFIGS or name in TRAINERS else ():
            is_model = name in TRAINERS and keyword.arg == "model"
            if keyword.arg is None or (name in TRAINERS and not is_model):
                continue
            key = MODEL if is_model else f"--{keyword.arg}"
            found.set(_given(key, keyword.value, file.name, known), over=True)


def _given(key: str, node: ast.expr, file: str, known: Mapping[str, object]) -> Given:
    try:
        value = _value(node, known)
    except ValueError:
        shown = ast.unparse(node)[:80]
        named = node.id if isinstance(node, ast.Name) else ""
        unknown = Unknown(named, "the program works it out", node.lineno, file)
        return Given(key, shown, file, node.lineno, unknown)
    if isinstance(value, list | tuple):
        return Given(key, " ".join(map(str, value)), file, node.lineno)
    return Given(key, str(value), file, node.lineno)


def _value(node: ast.expr, known: Mapping[str, object]) -> object:
    """A plain value, or the name of one.

    Raises:
        ValueError: it is worked out.
    """
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    try:
        return ast.literal_eval(node)
    except (TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


def _constants(tree: ast.Module) -> dict[str, object]:
    """Names that are given one plain value, once."""
    found: dict[str, object] = {}
    seen: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                seen[target.id] = seen.get(target.id, 0) + 1
                try:
                    found[target.id] = _value(node.value, found)
                except ValueError:
                    found.pop(target.id, None)
    return {name: value for name, value in found.items() if seen[name] == 1}


def _calls(file: LaunchFile) -> Iterator[ast.Call]:
    tree = _tree(file)
    if tree is not None:
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _tree(file: LaunchFile) -> ast.Module | None:
    try:
        return ast.parse(file.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
