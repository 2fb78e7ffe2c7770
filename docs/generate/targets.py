"""The page of targets: the tables of capabilities, as search, check and executor read them."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields

from automap.planner.frameworks import framework, framework_names
from automap.planner.targets.capabilities import (
    FEATURES,
    RolloutCapabilities,
    TrainingCapabilities,
)
from automap.planner.targets.tables import ANY, TARGETS
from automap.planner.targets.target import Target
from docs.generate.frameworks import limits

_WITH_KEYS = "[the keys](frameworks.md), and what it cannot be told:"
Capabilities = TrainingCapabilities | RolloutCapabilities | Target

_ABOUT = """\
# Targets

What runs a plan (`search.target`), as tables: enumeration, check, service and executor read the
same ones (a file each in `planner/targets/`). `any` stands for everything that can be priced.
"""


def page() -> str:
    """Markdown: for each target that is software its tables."""
    parts = [_ABOUT]
    for target in TARGETS.values():
        if target is not ANY:
            parts += _target(target)
    for name in framework_names():
        described = framework(name)
        parts.append(f"## {name}\n\n{described.summary}. Plans are exported to it; {_WITH_KEYS}\n")
        parts.append(limits(described))
    return "\n".join(parts)


def _target(target: Target) -> Iterator[str]:
    yield f"## {target.name}\n\n{target.summary}.\n"
    yield "### Training and scoring\n"
    yield _table(target.training, [engine.name for engine in target.training])
    yield "### Generation\n"
    yield _table((target.rollout,), [" or ".join(sorted(target.rollout.names))])
    yield "### The whole job\n"
    yield _table((target,), [target.name], without=frozenset({"summary", "in_place_of_gpus"}))
    yield "### Only on GPUs\n"
    yield (
        "A job with a pool of CPU cores (`gpu: cpu`) may not ask for what the table of generation "
        "reserves for GPUs. All else that only a GPU runs has something in its place:\n"
    )
    yield "| on GPUs | on CPU cores |\n|---|---|"
    yield "\n".join(f"| {on_gpus} | {instead} |" for on_gpus, instead in target.in_place_of_gpus)
    yield ""


def _table(
    sources: tuple[Capabilities, ...], names: list[str], *, without: frozenset[str] = frozenset()
) -> str:
    """A row per capability that has a docstring and is not left out, a column per source."""
    about = _docstrings(type(sources[0]))
    lines = [f"| | | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for field in fields(sources[0]):
        if field.name in about.keys() - without:
            values = " | ".join(_words(field.name, getattr(each, field.name)) for each in sources)
            lines.append(f"| `{field.name}` | {about[field.name]} | {values} |")
    return "\n".join([*lines, ""])


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the string literal below it in the class."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found, field = {}, ""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            field = statement.target.id
        elif (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and field
        ):
            found[field] = " ".join(str(statement.value.value).split())
    return found


def _words(name: str, value: object) -> str:
    if name == "unknown_features":
        assert isinstance(value, frozenset)
        return ", ".join(FEATURES[each][1] for each in FEATURES if each in value) or "none"
    match value:
        case None:
            return "all"
        case bool():
            return "yes" if value else "no"
        case frozenset():
            return ", ".join(map(str, sorted(value))) or "none"
        case tuple():
            return ", ".join(map(str, value))
        case _:
            return str(value)
