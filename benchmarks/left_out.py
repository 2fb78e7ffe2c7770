"""Errors of rows by constants that were fitted without their group, for every kind of table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray
from benchmarks import fit_generation, fit_memory, fit_training, hierarchical

UNSEEN = {
    "training": ("GPU generation within a stack", "dense or mixture within a stack"),
    "generation": ("dense or mixture within an engine", "GPU generation within an engine"),
}
"""Ways to leave rows out after which their software's use is one that nobody measured."""
USUAL = {"training": "project", "generation": "model", "memory": "project"}


@dataclass(frozen=True)
class LeftOut:
    """ln(predicted ÷ measured) of one row; where it was left out of no fit, as shipped."""

    usual: float
    """Its project had no part in the fit (generation: its model on all its GPUs)."""
    unseen: float
    """The worst of the ways in `UNSEEN`."""
    ways: Mapping[str, float]
    """Every way by name."""


def left_out_rows(path: str, kind: str) -> dict[str, LeftOut]:
    """By row id, for the rows that a fit sees; empty for kinds without one."""
    if kind == "training":
        steps = fit_training.fit(fit_training.usable_rows(path))
        schemes = fit_training.schemes_of(steps.rows)
        ids = [row.row_id for row in steps.rows]
        return _rows(kind, ids, {name: steps.left_out(own) for name, own in schemes.items()})
    if kind == "generation":
        decodes = fit_generation.fit(fit_generation.usable_rows(path))
        rows = [one.row for one in decodes.inside.all]
        ways = fit_generation.schemes_of(rows)
        ids = [row.row_id for row in rows]
        return _rows(kind, ids, {name: decodes.left_out(own) for name, own in ways.items()})
    if kind == "memory":
        peaks = fit_memory.peaks_of(path)
        problem, free = fit_memory.fit(peaks)
        ids = [row.row_id for row in peaks.rows]
        found = {
            name: hierarchical.left_out(problem, peaks.groups(name), free)
            for name in fit_memory.SCHEMES
        }
        return _rows(kind, ids, found)
    return {}


def _rows(kind: str, ids: Iterable[str], found: Mapping[str, FloatArray]) -> dict[str, LeftOut]:
    rows = {}
    for place, row_id in enumerate(ids):
        ways = {name: float(errors[place]) for name, errors in found.items()}
        worst = max((ways[name] for name in UNSEEN.get(kind, (USUAL[kind],))), key=abs)
        rows[row_id] = LeftOut(ways[USUAL[kind]], worst, ways)
    return rows


def by_group(values: Sequence[float], groups: Sequence[str]) -> list[FloatArray]:
    """The values of each group."""
    names, every = np.array(groups), np.array(values)
    return [every[names == name] for name in sorted(set(groups))]
