"""`automap examples`: what job specs there are to begin with, and copies of them."""

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.text import Text

from automap.planner import catalogue
from automap.service.cli.inputs import examples
from automap.service.cli.options.plans import ExamplesArguments
from automap.service.cli.terminal import console
from automap.service.cli.terminal.failures import BadInputError
from automap.service.cli.terminal.tables import plain_table


def run_examples(given: ExamplesArguments) -> None:
    """List the examples, or copy one."""
    if given.name is not None:
        _copy_example(given.name, given)
    elif given.to is not None or given.force:
        raise BadInputError("say which example: automap examples NAME")
    else:
        _list_examples(as_json=given.json)


def _list_examples(*, as_json: bool) -> None:
    """Every example with its algorithm, models and GPUs."""
    entries = [_entry(name) for name in examples.names()]
    if as_json:
        console.write_json(json.dumps(entries, indent=2))
        return
    table = plain_table()
    table.add_column("example", no_wrap=True)
    table.add_column("what it is")
    for each in entries:
        what = f"{each['algorithm']}: {each['models']} on {each['gpus']}"
        table.add_row(each["name"], Text(what))
    out = console.stdout_console()
    out.print(table)
    out.print(Text("automap examples NAME copies one to here", style="dim"))


def _copy_example(typed: str, given: ExamplesArguments) -> None:
    """Copy an example and what it needs.

    Raises:
        BadInputError: there is no such example, or other files would be overwritten.
    """
    name = examples.name_in(typed)
    if name not in examples.names():
        near = examples.like(name)
        raise BadInputError(
            f"there is no example {typed!r}",
            [f"did you mean {' or '.join(near)}?"] if near else ["automap examples lists them"],
        )
    copies = _copies(name, Path(given.to or "."))
    taken = [str(target) for source, target in copies if _differs(source, target)]
    if taken and not given.force:
        raise BadInputError(
            f"not overwritten: {', '.join(taken)}",
            ["--force overwrites, --to FILE copies elsewhere"],
        )
    for source, target in copies:
        _copy(source, target)
    spec = copies[0][1]
    if given.json:
        files = [str(target) for _, target in copies]
        console.write_json(json.dumps({"name": name, "files": files}, indent=2))
        return
    out = console.stdout_console()
    for _, target in copies:
        out.print(Text(str(target)), soft_wrap=True)
    runs = examples.settings_of(name) is not None
    out.print(
        Text(f"Plan it: automap plan {shlex.quote(str(spec))}", style="dim"),
        *([Text(f"Run it: automap run {shlex.quote(str(spec))}", style="dim")] if runs else []),
        sep="\n",
        soft_wrap=True,
    )


def _entry(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = examples.spec_of(name)
    return {
        "name": name,
        "algorithm": str(spec.get("algorithm") or "own dataflow").partition(":")[0],
        "models": _models(spec["models"].values()),
        "gpus": ", ".join(_gpus(pool) for pool in spec["cluster"]["pools"]),
        "about": examples.about(name),
    }


def _models(models: Iterable[dict[str, Any]]) -> str:
    """How many models there are of each architecture, functions apart: 3 llama-2-7b."""
    given = [model["architecture"] for model in models if "architecture" in model]
    counts = Counter(each if isinstance(each, str) else "own architecture" for each in given)
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def _gpus(pool: dict[str, Any]) -> str:
    """How many GPUs a pool has, and of which type."""
    node = catalogue.node_type(catalogue.gpu_type(pool["gpu"]).node)
    per_node = pool.get("gpus_per_node", node.gpus_per_node)
    return f"{pool['num_nodes'] * per_node:,} {pool['gpu']}"


def _copies(name: str, to: Path) -> list[tuple[Path, Path]]:
    """(an example's file, where it goes), the spec first."""
    spec = to / f"{name}.yaml" if to.is_dir() else to
    copies = [(examples.folder() / f"{name}.yaml", spec)]
    if (settings := examples.settings_of(name)) is not None:
        copies.append((settings, spec.with_suffix(examples.SETTINGS_ENDING)))
    return copies + [
        (examples.folder() / file, spec.parent / file) for file in examples.files_beside(name)
    ]


def _differs(source: Path, target: Path) -> bool:
    """True where the target is something else."""
    if not target.exists():
        return False
    return not target.is_file() or target.read_bytes() != source.read_bytes()


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except shutil.SameFileError:
        pass
    except OSError as error:
        raise BadInputError(f"cannot write {target}: {error.strerror or error}") from None
