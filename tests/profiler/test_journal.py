"""Results on the disk: appended, read again after a kill, written as the planner reads them."""

from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from automap.planner.catalogue import gpu_type
from automap.planner.cost.operators.profile import PROFILES, Profile
from automap.planner.profiles import COLUMNS, Key, write_tables
from automap.planner.profiles.tables import write_missing_tables
from automap.profiler.errors import ProfileError
from automap.profiler.results.journal import FILE, Entry, Journal
from automap.profiler.results.measurement import Measurement


def product(m: int, seconds: float) -> Entry:
    key: Key = {"precision": "fp32", "collector": "torch", "m": m, "n": 64, "k": 64}
    return Entry("gemm", key, Measurement(seconds, seconds, seconds, 7, 1, False))


def written(folder: Path, *entries: Entry) -> bytes:
    journal = Journal(folder)
    for entry in entries:
        journal.append(entry)
    journal.close()
    return (folder / FILE).read_bytes()


def test_what_was_measured_is_there_again(tmp_path: Path) -> None:
    failed = Entry("host_copies", {"direction": "to_host", "size_bytes": 1024}, None, "no memory")
    written(tmp_path, product(1, 1e-6), failed)
    journal = Journal(tmp_path)
    assert list(journal.entries.values()) == [product(1, 1e-6), failed]
    assert ("gemm", product(1, 2e-6).key) in journal
    assert ("gemm", product(2, 2e-6).key) not in journal
    assert journal.rows() == [("gemm", product(1, 1e-6).key, 1e-6)]


def test_half_a_line_that_a_kill_left_is_written_anew(tmp_path: Path) -> None:
    whole = written(tmp_path, product(1, 1e-6), product(2, 2e-6))
    (tmp_path / FILE).write_bytes(whole[:-20])
    assert written(tmp_path, product(2, 2e-6)) == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    whole = written(tmp_path, product(1, 1e-6), product(2, 2e-6))
    (tmp_path / FILE).write_bytes(whole.replace(b'"k": 64', b'"K": 64', 1))
    with pytest.raises(ProfileError, match="line 1: the columns of gemm are precision"):
        Journal(tmp_path)


def test_the_planner_reads_the_tables(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(product(1, 1e-6))
    journal.append(product(64, 5e-6))
    journal.write_tables()
    profile = Profile(gpu_type("cpu"), folder=tmp_path)
    assert profile.gemm([1, 64], 64, 64, precision="fp32").seconds == pytest.approx([1e-6, 5e-6])
    first = profile.version
    journal.append(product(512, 9e-6))
    journal.write_tables()
    assert Profile(gpu_type("cpu"), folder=tmp_path).version != first


def test_tables_of_which_some_are_missing_are_completed(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(product(1, 1e-6))
    add = {"operator": "add", "num_bytes": 64}
    journal.append(Entry("memory_bound", add, product(1, 2e-6).measurement))
    write_tables(tmp_path, journal.rows()[:1])
    assert not (tmp_path / "memory_bound.parquet").exists()
    write_missing_tables(tmp_path)
    assert parquet.read_table(tmp_path / "memory_bound.parquet")["seconds"].to_pylist() == [2e-6]
    (tmp_path / "gemm.parquet").unlink()
    write_missing_tables(tmp_path)
    assert not (tmp_path / "gemm.parquet").exists(), "written once"


@pytest.mark.parametrize(
    "table", ["gemm", "prefill_attention", "decode_attention", "moe", "collectives"]
)
def test_columns_are_those_of_the_shipped_tables(table: str) -> None:
    shipped = parquet.read_schema(PROFILES / "h100-80gb-sxm" / f"{table}.parquet").names
    assert set(shipped) == {*COLUMNS[table], "seconds"}
