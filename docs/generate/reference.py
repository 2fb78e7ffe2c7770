"""The pages of the reference that are generated: the command line, the documents, Python's door."""

from collections.abc import Mapping
from typing import Any

import typer
from typer.cli import get_docs_for_click

import automap
from automap.executor.settings import RunSettings
from automap.planner.plan.types import Plan, placement_json_schema
from automap.planner.spec import job_spec_json_schema
from automap.service.cli.main import app
from docs.generate import frameworks, targets

JsonSchema = Mapping[str, Any]

_DOCUMENTS = {
    "job-spec": (
        "Job spec",
        "What a user writes: the job, in YAML or JSON. [Describe a job](../guides/job.md) says "
        "which fields matter first; `automap schema job-spec` prints this as JSON Schema.",
        job_spec_json_schema,
    ),
    "placement": (
        "Placement",
        "Where copies lie and how calls run, without a price: what `automap estimate` takes, and "
        "part of every plan. `automap schema placement` prints this as JSON Schema.",
        placement_json_schema,
    ),
    "plan": (
        "Plan",
        "What planning returns, as JSON: `automap plan --json`, the body of an HTTP answer, and "
        "what `automap run` takes. [How to read a plan](../start/reading-a-plan.md) shows one.",
        lambda: Plan.model_json_schema(mode="serialization"),
    ),
    "run-settings": (
        "Run settings",
        "What running a plan needs beside it: data, weights, learning rates, output. "
        "[Run a plan](../guides/running.md) says how they are found; `automap schema run-settings` "
        "prints this as JSON Schema.",
        RunSettings.model_json_schema,
    ),
}

_ABOUT_COMMANDS = """\
## What all commands share

- `SPEC` may be `-` for standard input. All but `serve`, `worker` and most of `db` take `--json`.
- `compare`, `pareto`, `what-if`, `explain`, `simulate`, `export` and `replan` take `--server URL`,
  too: a service does it and stores the plans, and `PLAN` is then the id or the record of a stored
  one.
- A plan that another version made is named as such on stderr.
- Exit codes: 0 done, 2 bad input (also an address where no service answers), 3 no feasible plan
  (with the reasons), 130 cancelled, 1 our fault (`--debug` shows the traceback) or a run that
  failed.
"""
_ABOUT_PYTHON = """\
`from automap import make_plan`: these names are public, with the types that they take and
return; what is behind them may change. Nothing here reads the network or the environment. Every
type is a frozen pydantic model, so `plan.model_dump_json()` is what `automap plan --json` prints.
"""


GENERATED = (
    "cli.md",
    "python.md",
    "targets.md",
    "frameworks.md",
    *(f"{name}.md" for name in _DOCUMENTS),
)
"""The names of these pages in docs/reference."""


def pages() -> dict[str, str]:
    """File name → Markdown."""
    documents = {
        f"{name}.md": _document(title, about, schema())
        for name, (title, about, schema) in _DOCUMENTS.items()
    }
    generated = {
        "cli.md": _command_line(),
        "python.md": _python(),
        "targets.md": targets.page(),
        "frameworks.md": frameworks.page(),
    }
    return {**generated, **documents}


def _command_line() -> str:
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="automap")
    page = get_docs_for_click(obj=command, ctx=context, name="automap", title="Command line")
    return f"{page.rstrip()}\n\n{_ABOUT_COMMANDS}"


def _python() -> str:
    """Every public name under its kind, described by its docstring."""
    kinds: dict[str, list[str]] = {"Functions": [], "Types": [], "Errors": []}
    for name in automap.__all__:
        if isinstance(value := getattr(automap, name), type):
            kinds["Errors" if issubclass(value, Exception) else "Types"].append(name)
        elif callable(value):
            kinds["Functions"].append(name)
    parts = [f"# Python\n\n{_ABOUT_PYTHON}"]
    for kind, names in kinds.items():
        homes = [f"{getattr(automap, name).__module__}.{name}" for name in names]
        parts += [f"## {kind}\n", *(f"::: {home}\n" for home in homes)]
    strategies = (
        f"| `{one.name}` | {_cell(one.description)} | {one.reference} |"
        for one in automap.STRATEGIES.values()
    )
    head = ["## Strategies\n", "| `STRATEGIES` | | reference |", "|---|---|---|"]
    return "\n".join([*parts, *head, *strategies, ""])


def _document(title: str, about: str, schema: JsonSchema) -> str:
    parts = [f"# {title}\n\n{about}\n", _section(title, schema, heading=False)]
    parts += [_section(name, part) for name, part in sorted(schema.get("$defs", {}).items())]
    return "\n".join(parts)


def _section(name: str, schema: JsonSchema, *, heading: bool = True) -> str:
    lines = [f"## {name}\n"] if heading else []
    if description := schema.get("description"):
        lines.append(f"{_paragraph(description)}\n")
    if not schema.get("properties"):
        return "\n".join([*lines, f"{_type(schema)}\n"])
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    for field, one in schema["properties"].items():
        required = field in schema.get("required", ())
        default = "required" if required else _default(one)
        cells = (f"`{field}`", _type(one), default, one.get("description", ""))
        lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
    return "\n".join([*lines, ""])


def _type(schema: JsonSchema) -> str:
    """A type in words, with a link to the section of a named one."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            values = schema.get("additionalProperties")
            return f"name → {_type(values)}" if isinstance(values, dict) else "object"
        case str(name):
            return f"{name}{_bounds(schema)}"
        case _:
            return "anything"


def _bounds(schema: JsonSchema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    # A bound like 10⁹ or 10¹⁸ only keeps out what is no quantity.
    told = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if _tells(schema.get(key))]
    return f" {', '.join(told)}" if told else ""


def _tells(bound: float | None) -> bool:
    return bound is not None and abs(bound) < 1e6


def _default(schema: JsonSchema) -> str:
    if "default" not in schema:
        return ""
    match schema["default"]:
        case None:
            return "none"
        case bool(value):
            return f"`{str(value).lower()}`"
        case [] | {}:
            return "empty"
        case value:
            return f"`{value}`"


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _paragraph(text).replace("|", "\\|")
