"""README.md and docs/ name files, anchors and commands that exist; what they show runs."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.cost import constants
from automap.planner.cost.gpu_generations import GENERATIONS
from automap.planner.cost.operators import profile
from automap.planner.cost.operators.roofline import UNPACKING_SHARE
from automap.planner.cost.stacks import STACKS
from automap.planner.dataflow.algorithms import PROGRAMS
from automap.planner.validation.frameworks import FRAMEWORKS, UNKNOWN, UNKNOWN_SHARDED
from automap.service.cli.main import app
from tests.docs.documents import (
    DOCUMENTS,
    ROOT,
    Block,
    anchors,
    commands,
    files_named,
    is_generated,
    links,
    mentions,
    python_blocks,
    symbols_named,
)

BLOCKS = python_blocks("internals/executor.md", "concepts/algorithms.md")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
MOST_LINES = 12


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        file, _, anchor = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        assert target.exists() or is_generated(target), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_files_that_are_named_exist(document: Path) -> None:
    assert not {file for file in files_named(document) if not (ROOT / file).exists()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_functions_that_are_named_exist(document: Path) -> None:
    for file, name in symbols_named(document):
        text = (ROOT / file).read_text()
        for part in name.split("."):
            assert re.search(rf"^\s*(?:async )?(?:def|class) {part}\b", text, re.M), (file, name)


def test_links_and_commands_are_found_at_all() -> None:
    assert sum(len(links(document)) for document in DOCUMENTS) > 50
    assert sum(len(commands(document)) for document in DOCUMENTS) > 10
    assert sum(len(mentions(document)) for document in DOCUMENTS) > 25
    assert sum(len(files_named(document)) for document in DOCUMENTS) > 50
    assert sum(len(symbols_named(document)) for document in DOCUMENTS) > 40


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_have_these_options(document: Path) -> None:
    for arguments in commands(document):
        check_command(arguments)
    for arguments in mentions(document):
        try:
            check_command(arguments)
        except Exception as error:
            if "Missing" not in str(error):
                raise


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly", "x"], "automap fly"),
        (["db", "fly"], "automap … fly"),
        (["db", "backup", "x", "--fly"], "No such option"),
        (["plan", "x", "--fly"], "No such option"),
        (["plan", "x", "y"], "unexpected extra argument"),
        (["run", "--output"], "requires an argument"),
        (["run"], "Missing"),
    ],
)
def test_a_wrong_command_is_noticed(arguments: list[str], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        check_command(arguments)


def check_command(arguments: list[str]) -> None:
    """Parse it, as the command line would, and run nothing."""
    name, *rest = [argument for argument in arguments if argument != "--debug"] or ["plan"]
    assert name in COMMANDS, f"automap {name}"
    command = COMMANDS[name]
    if parts := getattr(command, "commands", None):  # of a command of several
        if not rest:
            return
        name, *rest = rest
        assert name in parts, f"automap … {name}"
        command = parts[name]
    command.make_context(name, rest)


def test_the_table_of_frameworks_has_their_defaults() -> None:
    _, _, after = (ROOT / "docs/concepts/accuracy.md").read_text().partition("| framework |")
    table, _, _ = after.partition("\n\n")
    expected = []
    for one in (*FRAMEWORKS, UNKNOWN, UNKNOWN_SHARDED):
        memory = f", memory as {one.memory_stack}" if one.memory_stack else ""
        cells = (one.name, one.training_stack + memory, one.sharding, one.recompute, one.why)
        expected.append(f"| {' | '.join(cells)} |")
    assert table.splitlines()[2:] == expected


CONSTANTS = ROOT / "docs" / "concepts" / "cost-model" / "constants.md"


def rows_of_constants(heading: str) -> dict[str, list[str]]:
    """The cells of the rows of all tables under a heading, by the first."""
    section = CONSTANTS.read_text().split(f"\n## {heading}")[1].split("\n## ")[0]
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line.startswith("|"):
            first, *cells = (cell.strip(" `") for cell in line.strip("|").split("|"))
            rows.setdefault(first, []).extend(cells)
    return rows


def numbers(cell: str) -> list[float]:
    """Those that stand alone: "2 bf16, 1,024 fp32" has two."""
    return [float(one) for one in re.findall(r"(?<!\w)\d[\d.]*(?:e-?\d+)?(?!\w)", cell)]


def test_every_constant_is_documented_with_its_value() -> None:
    rows = rows_of_constants("Shared by all")
    shared = {name: value for name, value in vars(constants).items() if name.isupper()}
    assert shared.keys() == rows.keys() - {"constant", "---"}
    for name, value in shared.items():
        values = list(value.values()) if isinstance(value, dict) else [value]
        cell = re.sub(r"(?<=\d),(?=\d)", "", rows[name][0])
        assert numbers(cell) == pytest.approx(values), name
        assert all(rows[name][1:]), name


def test_the_constants_of_operators_without_a_table_are_documented() -> None:
    rows = rows_of_constants("Operators without a table")
    for name in ("MEMORY_EFFICIENCY", "ROOFLINE_EFFICIENCY", "KERNEL_SECONDS"):
        assert numbers(rows[name][0]) == [getattr(profile, name)], name
    assert numbers(rows["UNPACKING_SHARE"][0]) == [UNPACKING_SHARE]


def test_the_guide_has_the_bytes_of_every_4_bit_format() -> None:
    guide = (ROOT / "docs/guides/job.md").read_text()
    for name, each in BLOCK_FORMATS.items():
        assert f"| `{name}` | {each.bytes_per_value:.2f}: " in guide
        assert f"{each.scale_bits}-bit scale per {each.block_values}" in guide


def test_every_stack_and_generation_is_documented_with_its_constants() -> None:
    rows = rows_of_constants("Training software")
    for name, stack in STACKS.items():
        kept = stack.memory
        expected = [
            stack.attention_share,
            stack.elementwise_passes,
            stack.collective_slowdown,
            kept.gradient_bytes,
            kept.master_bytes,
            kept.moment_bytes,
            kept.step_bytes,
            kept.eight_bit_copy_bytes,
            kept.logit_bytes,
            kept.scored_logit_bytes,
            kept.logit_chunk_bytes,
            kept.bucket_bytes,
        ]
        assert [float(cell.replace(",", "")) for cell in rows[name]] == expected, name
    rows = rows_of_constants("GPU generations in training")
    for name, one in GENERATIONS.items():
        shares = [one.sustained_share, one.eight_bit_gain, one.attention_share]
        assert [float(cell) for cell in rows[name]] == shares, name


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.file], ids=str)
def test_what_is_shown_of_a_file_is_in_it(block: Block) -> None:
    assert block.file is not None
    assert block.part.strip() in (ROOT / block.file).read_text()


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if not each.file and not each.needs_executor], ids=str
)
def test_block_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    exec(compile(block.code, str(block), "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "remax", "safe_rlhf"])
def test_programs_are_short_and_shown(algorithm: str) -> None:
    source = inspect.getsource(PROGRAMS[algorithm].run)
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    _docstring, *body = function.body
    assert body[-1].end_lineno is not None
    assert body[-1].end_lineno - body[0].lineno + 1 <= MOST_LINES
    shown = [block.part for block in python_blocks("internals/executor.md") if block.file]
    assert any(source.strip() in each for each in shown)
