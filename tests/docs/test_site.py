"""The start page is short, its picture is of this planner, and the site loads nothing."""

import re
from pathlib import Path

import pytest

from docs.generate import offline, picture, reference
from docs.generate.__main__ import FROM_OUTSIDE, pages_in_menu
from tests.docs.documents import DOCUMENTS, ROOT, readme_blocks

README = (ROOT / "README.md").read_text()
MOST_COLUMNS = 100
WRITTEN_BY_BENCHMARKS = ("loop.md", "reproduction.md")
PROSE = [document for document in DOCUMENTS if document.name not in WRITTEN_BY_BENCHMARKS]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert len(README.split()) <= 700


def test_the_picture_is_what_the_planner_plans_now() -> None:
    assert picture.PICTURE.read_text() == picture.picture(), "python -m docs.generate.picture"


def test_the_python_of_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT / "examples")
    (block,) = readme_blocks()
    exec(compile(block, "README.md", "exec"), {"__name__": "docs"})
    seconds, gap = map(float, capsys.readouterr().out.split())
    assert seconds == pytest.approx(156.4, abs=0.1)
    assert 0 < gap < 0.03


def test_every_page_of_the_menu_is_there() -> None:
    written = {*FROM_OUTSIDE.values(), *(f"reference/{name}" for name in reference.GENERATED)}
    assert not [
        page
        for page in pages_in_menu()
        if page not in written and not (ROOT / "docs" / page).is_file()
    ]


def test_every_page_but_decisions_is_in_the_menu() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/*/**/*.md")}
    assert not {page for page in pages if not page.startswith("adr/0")} - set(pages_in_menu())


def test_the_generated_reference_has_every_command_field_and_name() -> None:
    pages = reference.pages()
    assert pages.keys() == set(reference.GENERATED)
    assert "## `automap plan`" in pages["cli.md"]
    assert "| `prompts_per_iteration` | integer ≥ 1 | required |" in pages["job-spec.md"]
    assert "| `iteration_seconds` | number | required |" in pages["plan.md"]
    assert "::: automap.planner.planning.make_plan" in pages["python.md"]
    assert re.search(
        r"\| `shardings` \|.*\| none, optimizer \| full, gradient \|", pages["targets.md"]
    )
    assert re.search(r"\| `precisions_on_gpus_only` \|.*\| fp8 \|", pages["targets.md"])
    assert "| NCCL | gloo |" in pages["targets.md"]
    assert "Safe-RLHF and dataflows of one's own" in pages["targets.md"]
    assert "| `data.train_batch_size` | 1024 | prompts |" in pages["frameworks.md"]


def test_links_inside_a_generated_page_lead_to_a_heading() -> None:
    for name, page in reference.pages().items():
        headings = {heading.lower() for heading in re.findall(r"^## (\w+)$", page, re.MULTILINE)}
        assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings, name


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', 1),
        ("a.html", '<link rel="stylesheet" href="//fonts.example/css">', 1),
        ("a.html", '<img src="http://example/x.png"><a href="https://example">read</a>', 1),
        ("a.html", '<script src="assets/x.js"></script><link rel="next" href="b.html">', 0),
        ("a.css", "@import 'https://fonts.example/css'; a { b: url(//x.example/f.woff) }", 2),
        ("a.css", "a { b: url(../fonts/f.woff) }", 0),
        ("a.svg", '<svg><image href="https://example/x.png"/></svg>', 1),
    ],
)
def test_what_a_page_would_load_from_elsewhere_is_found(
    tmp_path: Path, file: str, text: str, found: int
) -> None:
    (tmp_path / file).write_text(text)
    assert len(offline.loads_from_elsewhere(tmp_path)) == found


@pytest.mark.parametrize("document", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_has_one_width(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "#"))]
    assert not [line for line in lines if len(line) > MOST_COLUMNS]
