"""The page of frameworks that plans are exported to: keys, and what cannot be said."""

from collections.abc import Iterator

from automap.planner.frameworks import Framework, Setting, framework, framework_names

_ABOUT = """\
# Frameworks

What each framework can be told of a plan, by version, as data
(`planner/frameworks/NAME-VERSION.toml`), which export and refusals read.
[Export a plan](../guides/exporting.md) says how to use it. A key that begins with `+` is not in the
framework's own files; one that begins with `--` is an argument. Where a key has no default, it must
be given.
"""


_CHECKED = {
    "verl": "Exports pass this version's own code on CPU: composition, checks, the engines of each "
    "role and the pools (`make test-exports`).",
    "nemo-rl": "NeMo-RL has no package whose code exports could pass: every key of theirs is held "
    "to this table, by name and type, and to one another. The keys of parallel sizes, "
    "recomputation, batches, pools, engines and asynchrony were read from its source. The others "
    "are from memory of it, and no check here would see one misspelt: model, precision, optimizer, "
    "lengths of prompts and responses, steps, validation, checkpoints, advantages, clips, "
    "coefficients, dynamic sampling, logger and turns; so are the defaults, which are those of "
    "`grpo_math_1B.yaml`, and `ray.sub`'s COMMAND. `value.*` and the rest of its "
    "PPO are not described.",
    "openrlhf": "Exports pass this version's own parser and placement checks on CPU, and every "
    "argument here is held to them by name, type and default (`make test-exports`).",
    "trl": "Exports pass the parsers and checks of this version's scripts on CPU, accelerate's for "
    "a launch, and vLLM's parser; every argument of the scripts here is held to theirs by name, "
    "type and default (`make test-exports`).",
    "skyrl": "Exports pass this version's own configuration, checks and placement on CPU, up to "
    "where workers start, and every key here is held to its dataclasses by name, type and default "
    "(`make test-exports`).",
    "areal": "Exports pass this version's own loader of configurations, its parser of backends and "
    "the checks of its trainer on CPU, and every key here is held to its dataclasses by type and "
    "default (`make test-exports`).",
    "slime": "slime has no package whose code exports could pass: every argument of theirs is held "
    "to this table, by name and type, and to one another.",
}
"""How exports were held against a framework."""


def page() -> str:
    """Markdown: for each framework its keys, limits and pitfalls."""
    return "\n".join([_ABOUT, *(line for name in framework_names() for line in _framework(name))])


def limits(described: Framework) -> str:
    """A table of what cannot be said; what the framework's own checks let through has a mark."""
    head = ["| cannot be said | instead | its own checks |", "|---|---|---|"]
    rows = (
        f"| {limit.what} | {limit.instead} | {'let it through' if limit.unchecked else ''} |"
        for limit in described.limits
    )
    return "\n".join([*head, *rows, ""])


def _framework(name: str) -> Iterator[str]:
    described = framework(name)
    yield f"## {name}\n\n{described.summary}. Released with {described.beside}.\n"
    yield "### One decision a row\n"
    yield "| decision | whose | key | default | unit |\n|---|---|---|---|---|"
    for setting in described.settings:
        yield from _rows(setting)
    yield "\n### What cannot be said\n"
    yield (
        "A plan that does any of this is refused, with every reason. Where the framework's own "
        "checks let it through, it would run otherwise than planned, or fail later.\n"
    )
    yield limits(described)
    yield "### Accepted, and without effect\n"
    yield "| key | what is read in its place |\n|---|---|"
    for key, instead in described.without_effect.items():
        yield f"| `{key}` | {instead} |"
    yield "\n### What predictions assume\n"
    for each in described.assumptions:
        yield f"- {each}"
    yield (
        f"\n{_CHECKED[described.name]} No prediction was compared with a run yet; `automap "
        f"calibrate --format {described.name}` reads its log, and says how far off prices are.\n"
    )


def _rows(setting: Setting) -> Iterator[str]:
    about = setting.about + (f" ({setting.engine})" if setting.engine else "")
    about += f"; {setting.note}" if setting.note else ""
    for role, key in setting.keys.items():
        whose = "" if role == "job" else role
        yield f"| {about} | {whose} | `{key}` | {setting.default} | {setting.unit} |"
