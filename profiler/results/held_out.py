"""How well the planner's interpolation predicts shapes that it was not given.

Shapes are left out of the measured tables, the rest is read by the planner as any profile, and
what it predicts is compared with what was measured.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automap.planner.catalogue import GpuType
from automap.planner.cost import Profile
from automap.planner.layout import FloatArray
from automap.planner.profiles import write_tables
from automap.profiler.results.journal import Entry
from automap.profiler.results.profile_report import HeldOut

FEWEST_SHAPES = 8
FOLDS = 4
Columns = Mapping[str, FloatArray]
_ATTENTION = ("num_attention_heads", "num_key_value_heads", "head_dim")


@dataclass(frozen=True, slots=True)
class _Test:
    """Values of `axes` are left out, every fourth; the least and the largest always stay."""

    table: str
    axes: tuple[str, ...]
    predict: Callable[[Profile, Columns, str], FloatArray]


def _product(profile: Profile, rows: Columns, precision: str) -> FloatArray:
    return profile.gemm(rows["m"], rows["n"], rows["k"], precision=precision).seconds


def _heads(rows: Columns) -> dict[str, FloatArray]:
    return {name: rows[name] for name in ("batch_size", *_ATTENTION)}


def _prefill(profile: Profile, rows: Columns, _precision: str) -> FloatArray:
    length = rows["sequence_length"]
    return profile.prefill_attention(sequence_length=length, **_heads(rows)).seconds


def _decode(profile: Profile, rows: Columns, _precision: str) -> FloatArray:
    length = rows["kv_length"]
    return profile.decode_attention(kv_length=length, cache_bytes=None, **_heads(rows)).seconds


def _memory_bound(profile: Profile, rows: Columns, _precision: str) -> FloatArray:
    return profile.memory_bound(rows["num_bytes"]).seconds


def _collective(profile: Profile, rows: Columns, name: str) -> FloatArray:
    assert profile.tables is not None
    grid = profile.tables.collective(name)
    assert grid is not None
    group, size = rows["num_gpus"], rows["size_bytes"]
    sent = (2.0 if name == "all_reduce" else 1.0) * size * (group - 1) / group
    seconds: FloatArray = sent / np.exp(grid.at(group, size).values)
    return seconds


TESTS = (
    _Test("gemm", ("m",), _product),
    _Test("gemm", ("n", "k"), _product),
    _Test("prefill_attention", ("batch_size", "sequence_length"), _prefill),
    _Test("prefill_attention", _ATTENTION, _prefill),
    _Test("decode_attention", ("batch_size", "kv_length"), _decode),
    _Test("decode_attention", _ATTENTION, _decode),
    _Test("memory_bound", ("num_bytes",), _memory_bound),
    _Test("collectives", ("size_bytes",), _collective),
)
VARIANTS = {"gemm": "precision", "memory_bound": "operator", "collectives": "collective"}
UNREAD = {"send_recv"}
"""Measured, but priced by formula."""


def held_out_errors(gpu: GpuType, entries: Sequence[Entry]) -> list[HeldOut]:
    """The error of each test for which there are shapes enough."""
    results = []
    for test in TESTS:
        column = VARIANTS.get(test.table)
        mine = [e for e in entries if e.table == test.table and e.measurement is not None]
        variants = sorted({str(e.key[column]) for e in mine}) if column else [""]
        for variant in variants:
            if variant in UNREAD:
                continue
            chosen = [e for e in mine if column is None or e.key[column] == variant]
            errors = np.array(list(_errors(gpu, test, chosen, variant)))
            if len(errors) >= FEWEST_SHAPES:
                results.append(
                    HeldOut(
                        table=f"{test.table} {variant}".strip(),
                        left_out=", ".join(test.axes),
                        shapes=len(errors),
                        median_error=float(np.median(errors)),
                        mean_error=float(errors.mean()),
                    )
                )
    return results


def _errors(gpu: GpuType, test: _Test, entries: Sequence[Entry], variant: str) -> Iterator[float]:
    """Relative errors, fold by fold."""
    values = sorted({tuple(entry.key[axis] for axis in test.axes) for entry in entries})
    ends = _ends(values)
    inner = [value for value in values if not ends & set(enumerate(value))]
    if test.axes == _ATTENTION:
        inner = values  # a configuration has no ends: its neighbours are those nearest
    for fold in range(FOLDS):
        out = set(inner[fold::FOLDS])
        kept = [e for e in entries if tuple(e.key[axis] for axis in test.axes) not in out]
        held = [e for e in entries if tuple(e.key[axis] for axis in test.axes) in out]
        if not held or len(kept) < FEWEST_SHAPES:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            write_tables(path, [(e.table, e.key, _seconds(e)) for e in kept])
            predicted = test.predict(Profile(gpu, folder=path), _columns(held), variant)
        measured = np.array([_seconds(e) for e in held])
        yield from np.abs(predicted / measured - 1.0)


def _ends(values: Sequence[tuple[str | int, ...]]) -> set[tuple[int, str | int]]:
    """The least and the largest value on each axis: beyond the rest nothing interpolates."""
    columns = [sorted(set(column)) for column in zip(*values, strict=True)]
    return {(axis, end) for axis, column in enumerate(columns) for end in (column[0], column[-1])}


def _seconds(entry: Entry) -> float:
    assert entry.measurement is not None
    return entry.measurement.seconds


def _columns(entries: Sequence[Entry]) -> Columns:
    names = [name for name, value in entries[0].key.items() if not isinstance(value, str)]
    return {name: np.array([float(entry.key[name]) for entry in entries]) for name in names}
