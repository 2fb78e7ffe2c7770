"""`automap validate` as a user types it: what it prints and writes, and how it ends."""

import csv
import json
from importlib import util
from pathlib import Path

import pytest

from automap.service.cli.main import main
from tests.planner.validation.published_tables import KINDS, PUBLISHED, changed, golden, text_of

TABLES = [str(PUBLISHED / f"{kind}.csv") for kind in KINDS]
FIRST_COLUMNS = ["row_id", "quantity", "predicted", "measured", "skipped_because"]


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["validate", *arguments])
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out, captured.err


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "table.csv") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.slow
def test_the_golden_tables_are_predicted_and_explained(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(capsys, *TABLES, "--details")
    assert (code, err) == (0, "")
    for kind in KINDS:
        assert f"{kind}.csv ({kind}, {len(golden(kind))} rows)" in out
    for shown in ("iteration_seconds, dense, 16-bit", "peak_memory_bytes", "median", "bias", "tau"):
        assert shown in out
    assert "Out of memory: 3 failed as predicted" in out
    assert "recompute not stated" in out
    assert "gated linear attention is not" not in out  # the catalogue has the layers
    table_lines = [line for line in out.splitlines() if "%" in line]
    assert max(map(len, table_lines)) <= 80


@pytest.mark.slow
def test_json_has_every_figure_and_nothing_else(capsys):
    code, out, err = call(capsys, *TABLES, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["mistakes"] == {}
    assert [table["kind"] for table in document["tables"]] == list(KINDS)
    training = document["tables"][0]
    dense = next(one for one in training["totals"] if one["subset"] == "dense, 16-bit")
    groups = [one for one in training["groups"] if one["subset"] == "dense, 16-bit"]
    assert dense["num_predicted"] == sum(one["num_predicted"] for one in groups)
    assert {"source", "gpu", "precision"} <= set(groups[0])
    assert 0 < dense["median_error"] < 1
    total = sum(one["num_predicted"] + sum(one["skipped"].values()) for one in training["totals"])
    assert total == len(golden("training"))


@pytest.mark.slow
def test_rows_are_written_with_their_parts(capsys, tmp_path):
    out = tmp_path / "rows.csv"
    code, _, _ = call(capsys, *TABLES, "--json", "--rows", str(out))
    assert code == 0
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:5] == FIRST_COLUMNS
    for row in rows:
        assert bool(row["predicted"]) != bool(row["skipped_because"])
    steps = [row for row in rows if row["table"] == "training.csv" and row["predicted"]]
    for row in steps:
        parts = sum(float(cell) for name, cell in row.items() if name.endswith("_seconds") and cell)
        assert parts == pytest.approx(float(row["predicted"]), rel=1e-4)
    memory = [row for row in rows if row["quantity"] == "peak_memory_bytes" and row["predicted"]]
    for row in memory:
        parts = sum(float(cell) for name, cell in row.items() if name.endswith("_bytes") and cell)
        assert parts == pytest.approx(float(row["predicted"]), rel=1e-4)


def test_doubtful_rows_are_skipped_unless_asked_for(capsys, written):
    table = written(changed("gemm", quality="C"))
    document = json.loads(call(capsys, table, "--json")[1])
    assert document["tables"][0]["totals"][0]["skipped"] == {"quality C": 1}
    document = json.loads(call(capsys, table, "--json", "--quality", "c")[1])
    assert document["tables"][0]["totals"][0]["skipped"] == {"quality A": 1}


def test_groups_can_be_chosen(capsys):
    document = json.loads(call(capsys, TABLES[0], "--json", "--by", "model,gpu")[1])
    group = document["tables"][0]["groups"][0]
    assert {"model", "gpu"} <= set(group)
    assert "source" not in group


def test_a_wrong_row_is_named_the_others_count_and_the_code_is_2(capsys, written):
    table = written(changed("training", iteration_seconds="1e6"))
    rows = Path(table).with_name("rows.csv")
    code, out, err = call(capsys, table, "--json", "--rows", str(rows))
    assert code == 2
    assert "1 mistake" in err
    assert f"{table}: line 3 (changed): iteration_seconds" in err
    document = json.loads(out)
    assert document["tables"][0]["num_rows"] == 1
    assert document["tables"][0]["totals"][0]["num_predicted"] == 1
    assert len(document["mistakes"][table]) == 1
    assert "changed,,,,refused: line 3" in rows.read_text(encoding="utf-8")


TIMES = dict.fromkeys(KINDS, "iteration_seconds") | {
    "memory": "peak_memory_bytes",
    "generation": "decode_step_seconds",
    "collectives": "seconds",
    "gemm": "seconds",
}
CONTRADICTIONS = {
    "num_gpus": "16",
    "tensor_parallel_size": "4",
    "pipeline_parallel_size": "2",
    "context_parallel_size": "1",
    "data_parallel_size": "1",
}
RUNS = ("training", "memory", "generation", "rlhf")


@pytest.mark.parametrize(
    ("kind", "cells", "column"),
    [
        *(
            (kind, {TIMES[kind]: "1e6" if kind != "memory" else "64"}, TIMES[kind])
            for kind in KINDS
        ),
        *((kind, {"gpu_type": "h1000"}, "gpu_type") for kind in KINDS),
        *((kind, {"row_id": golden(kind)[0]["row_id"]}, "row_id") for kind in KINDS),
        *((kind, CONTRADICTIONS, "num_gpus") for kind in RUNS),
        ("collectives", {"num_gpus": "16", "num_nodes": "3"}, "num_nodes"),
    ],
)
def test_bad_cells_are_named_in_every_kind_of_table(capsys, written, kind, cells, column):
    table = written(changed(kind, **cells))
    code, out, err = call(capsys, table, "--json", "--quality", "A,B,C")
    assert code == 2
    assert ": line 3 (" in err
    assert f"): {column}: " in err
    (told,) = json.loads(out)["tables"]
    assert told["num_rows"] == 1
    assert sum(one["num_predicted"] + sum(one["skipped"].values()) for one in told["totals"]) >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_named_in_every_kind_of_table_and_rows_stay(capsys, written, kind):
    rows = [
        {name: cell for name, cell in row.items() if name != "year"} | {"weather": "fine"}
        for row in golden(kind)[:2]
    ]
    table = written(text_of(rows))
    code, out, err = call(capsys, table, "--json", "--quality", "A,B,C")
    assert code == 2
    assert f"line 1: year: a {kind} table has this column; it is missing" in err
    assert f"line 1: weather: a {kind} table has no such column; it is ignored" in err
    assert json.loads(out)["tables"][0]["num_rows"] == 2


def test_a_file_that_is_no_table_does_not_stop_the_others(capsys, written):
    prose = written("A report\nwith sentences, and a comma\n", "prose.txt")
    code, out, err = call(capsys, prose, TABLES[-1], "--json")
    assert code == 2
    assert "prose.txt: the header is that of no known kind of table" in err
    assert [table["kind"] for table in json.loads(out)["tables"]] == ["gemm"]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_another_separator_than_the_comma_is_named(capsys, written, separator):
    table = written(text_of(golden("gemm")).replace(",", separator))
    code, _, err = call(capsys, table)
    assert code == 2
    assert f"its columns are separated by {separator!r}; commas are read" in err


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"\x89PNG\r\n\x1a\n\xff", "not text in UTF-8"), (b"row_id\x00,m", "NUL"), (b"", "no header")],
)
def test_bytes_that_are_no_text_are_said_so(capsys, tmp_path, content, part):
    path = tmp_path / "picture.csv"
    path.write_bytes(content)
    code, _, err = call(capsys, str(path))
    assert code == 2
    assert part in err


def test_a_file_that_is_not_there(capsys):
    code, out, err = call(capsys, "no-such-table.csv")
    assert (code, out) == (2, "")
    assert "cannot read it: No such file" in err


def test_many_mistakes_are_cut_and_counted(capsys, written):
    rows = [row | {"row_id": f"r{i}", "m": "x"} for i in range(60) for row in golden("gemm")[:1]]
    code, _, err = call(capsys, written(text_of(rows)))
    assert code == 2
    assert "60 mistakes" in err
    assert "and 20 more" in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--quality", "A,Z"], "unknown Z (valid: A, B, C)"),
        (["--quality", ","], "names nothing"),
        (["--by", "colour"], "unknown colour"),
        (["--rows", "no/such/folder/out.csv"], "there is no folder"),
    ],
)
def test_wrong_options_are_told_before_any_work(capsys, arguments, part):
    code, out, err = call(capsys, TABLES[-1], *arguments)
    assert (code, out) == (2, "")
    assert part in err


@pytest.mark.parametrize("option", ["--rows", "--plot"])
def test_a_table_that_is_read_is_not_overwritten(capsys, written, option):
    text = text_of(golden("gemm"))
    path = written(text)
    code, _, err = call(capsys, path, option, path)
    assert (code, Path(path).read_text(encoding="utf-8")) == (2, text)
    assert "one of the tables that are read" in err


def test_a_table_without_rows_says_so(capsys, written):
    code, out, _ = call(capsys, written(text_of(golden("gemm")).splitlines()[0]))
    assert code == 0
    assert "No row to predict." in out
    assert "median" not in out


def test_plot_draws_or_says_what_it_needs(capsys, tmp_path):
    picture = tmp_path / "errors.png"
    code, _, err = call(capsys, TABLES[-1], "--plot", str(picture))
    if util.find_spec("matplotlib") is None:
        assert code == 2
        assert "pip install matplotlib" in err
        assert not Path(picture).exists()
    else:
        assert code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_control_characters_of_a_table_do_not_reach_the_terminal(capsys, written):
    code, out, err = call(capsys, written(changed("gemm", source="evil\x1b[2Jsource", m="\x1b[1m")))
    assert code == 2
    assert "\x1b" not in out + err
