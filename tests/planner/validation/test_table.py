"""What is wrong with a table is told by line, row and column; sound rows stay."""

import pytest

from automap.planner.validation.table import NotATableError, parse_table
from tests.planner.validation.published_tables import KINDS, changed, golden, text_of


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_recognised_by_its_header(kind):
    rows = golden(kind)
    table = parse_table(text_of(rows))
    assert table.kind == kind
    assert [row.row_id for row in table.rows] == [row["row_id"] for row in rows]
    assert table.mistakes == ()


def test_the_order_of_columns_and_a_byte_order_mark_do_not_matter():
    rows = [dict(reversed(row.items())) for row in golden("memory")]
    assert parse_table("\ufeff" + text_of(rows)).kind == "memory"


@pytest.mark.parametrize(
    ("kind", "cells", "column", "part"),
    [
        ("training", {"iteration_seconds": "1e6"}, "iteration_seconds", "less than or equal to"),
        ("training", {"iteration_seconds": "-3"}, "iteration_seconds", "greater than"),
        ("training", {"iteration_seconds": "nan"}, "iteration_seconds", "got 'nan'"),
        ("training", {"iteration_seconds": "fast"}, "iteration_seconds", "got 'fast'"),
        ("training", {"hidden_size": "4096.5"}, "hidden_size", "got '4096.5'"),
        ("training", {"gpu_type": "h1000"}, "gpu_type", "no GPU type 'h1000'"),
        ("training", {"quality": "D"}, "quality", "got 'D'"),
        ("training", {"precision": "fp12"}, "precision", "got 'fp12'"),
        ("training", {"row_id": ""}, "row_id", "at least 1 character"),
        ("training", {"num_gpus": "7"}, "num_gpus", "but num_gpus is 7"),
        ("training", {"gpus_per_node": "4096"}, "gpus_per_node", "less than or equal to 128"),
        (
            "training",
            {"global_batch_size": "1", "micro_batch_size": "2"},
            "global_batch_size",
            "fewer than micro",
        ),
        ("training", {"num_key_value_heads": "7"}, "num_key_value_heads", "does not divide"),
        ("memory", {"peak_memory_bytes": "64.5"}, "peak_memory_bytes", "got '64.5'"),
        ("memory", {"out_of_memory": "2"}, "out_of_memory", "got '2'"),
        ("generation", {"decode_step_seconds": "12"}, "decode_step_seconds", "got '12'"),
        ("collectives", {"num_nodes": "3"}, "num_nodes", "does not divide"),
        ("collectives", {"seconds": "5000"}, "seconds", "got '5000'"),
        ("collectives", {"seconds": "0.2"}, "seconds", "bus_bandwidth_bytes_per_second says"),
        ("gemm", {"m": "0"}, "m", "got '0'"),
    ],
)
def test_a_wrong_cell_is_named_and_the_other_row_stays(kind, cells, column, part):
    table = parse_table(changed(kind, **cells))
    assert len(table.rows) == 1
    (mistake,) = table.mistakes
    assert (mistake.line, mistake.column) == (3, column)
    assert part in str(mistake)


def test_milliseconds_contradict_the_tokens_per_second():
    sizes = {"num_gpus": "8", "data_parallel_size": "", "micro_batch_size": "1"}
    sizes |= {f"{name}_parallel_size": "1" for name in ("tensor", "pipeline", "context")}
    sizes |= {"global_batch_size": "64", "sequence_length": "2048"}
    sizes |= {"tokens_per_second_per_gpu": "8192"}
    assert parse_table(changed("training", **sizes, iteration_seconds="2.1")).mistakes == ()
    (mistake,) = parse_table(changed("training", **sizes, iteration_seconds="2100")).mistakes
    assert mistake.column == "iteration_seconds"
    assert mistake.message == "2100 s, but tokens_per_second_per_gpu says 2 s"


def test_sizes_contradict_only_where_all_are_stated_or_too_many():
    sizes = {
        "num_gpus": "16",
        "tensor_parallel_size": "4",
        "pipeline_parallel_size": "2",
        "context_parallel_size": "1",
    }
    assert parse_table(changed("training", **sizes, data_parallel_size="2")).mistakes == ()
    assert parse_table(changed("training", **sizes, data_parallel_size="")).mistakes == ()
    (mistake,) = parse_table(changed("training", **sizes, data_parallel_size="1")).mistakes
    assert "tensor 4 × pipeline 2 × context 1 × data 1 is 8 GPUs" in mistake.message
    (mistake,) = parse_table(
        changed("training", **sizes | {"pipeline_parallel_size": "8"}, data_parallel_size="")
    ).mistakes
    assert "is 32 GPUs" in mistake.message


def test_every_mistake_of_a_row_is_told():
    table = parse_table(changed("training", iteration_seconds="x", gpu_type="y", quality="Z"))
    assert {mistake.column for mistake in table.mistakes} == {
        "iteration_seconds",
        "gpu_type",
        "quality",
    }


def test_a_repeated_id_is_refused_and_names_the_first():
    first = golden("gemm")[0]
    table = parse_table(text_of([first, first]))
    assert len(table.rows) == 1
    assert "line 2" in table.mistakes[0].message
    assert table.mistakes[0].line == 3


def test_missing_and_superfluous_columns_are_named_and_rows_still_read():
    rows = [
        {name: cell for name, cell in row.items() if name != "year"} | {"weather": "fine"}
        for row in golden("gemm")
    ]
    table = parse_table(text_of(rows))
    assert len(table.rows) == len(rows)
    assert {(mistake.line, mistake.column) for mistake in table.mistakes} == {
        (1, "year"),
        (1, "weather"),
    }


def test_a_missing_column_that_rows_need_refuses_them():
    rows = [{n: c for n, c in row.items() if n != "gpu_type"} for row in golden("gemm")[:2]]
    table = parse_table(text_of(rows))
    assert table.rows == ()
    assert [mistake.line for mistake in table.mistakes] == [1, 2, 3]


def test_a_row_with_too_few_cells_is_refused():
    text = text_of(golden("gemm")[:1]) + "short,row\n"
    table = parse_table(text)
    assert len(table.rows) == 1
    assert "2 cells" in table.mistakes[0].message


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# a title\nand prose\n", "a,b,c\n1,2,3\n", '{"row_id": 1}', '"unclosed']
)
def test_what_is_no_table_is_said_so(text):
    with pytest.raises(NotATableError):
        parse_table(text)


def test_a_quote_that_never_closes_is_not_csv():
    text = text_of(golden("gemm")[:1]) + '"never closed\n'
    with pytest.raises(NotATableError, match="not CSV"):
        parse_table(text)
