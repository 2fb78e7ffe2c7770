"""Statistics on the errors of predictions, whatever made them.

Nothing here knows a cost model, so predictions of a model fitted without some rows (leave one
source out) go through the same functions.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automap.planner.layout import FloatArray
from automap.planner.validation.groups import group_of, load_stratum, project_of
from automap.planner.validation.predictions import Prediction
from automap.planner.validation.row_intervals import interval_of

Key = tuple[str, ...]

DIMENSIONS: Mapping[str, Callable[[Prediction], str]] = {
    "source": lambda one: one.row.source,
    "gpu": lambda one: one.row.gpu_type,
    "precision": lambda one: one.row.precision or "not stated",
    "model": lambda one: str(getattr(one.row, "model", "")),
    "project": lambda one: project_of(one.row),
    "load": lambda one: load_stratum(one.row),
    "year": lambda one: str(one.row.year or "not stated"),
}
"""Dimensions by which predictions may be grouped, beside kind, quantity and subset."""
DEFAULT_DIMENSIONS = ("source", "gpu", "precision")


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of out-of-memory verdicts against what happened."""

    ran_as_predicted: int
    failed_as_predicted: int
    failed_but_predicted_to_run: int
    ran_but_predicted_to_fail: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The errors of one group of predictions; None where nothing was predicted."""

    kind: str
    quantity: str
    subset: str
    key: Key
    num_predicted: int
    num_from_tables: int
    """Number among `num_predicted` that are points of the profile's own tables: no prediction, and
    no merit."""
    skipped: Mapping[str, int]
    """Reason → number of rows."""
    median_error: float | None
    """Median of |predicted ÷ measured − 1|."""
    mean_error: float | None
    bias: float | None
    """Mean of predicted ÷ measured − 1."""
    p90_error: float | None
    num_groups: int
    """Groups whose errors go together (`groups.group_of`) among those predicted."""
    group_mean_error: float | None
    """Mean over groups of each one's mean error: a group of many rows counts as one of few."""
    rows_held: float | None
    """Share of rows inside their 80 % intervals; None where no row has one."""
    groups_held: float | None
    """Mean over groups of the share of their rows inside the intervals."""
    kendall_tau: float | None
    """Kendall's tau within runs of the same model on as many GPUs; None where no two differ."""
    confusion: Confusion | None

    @property
    def num_skipped(self) -> int:
        """Rows without a prediction."""
        return sum(self.skipped.values())


def summarise(
    predictions: Iterable[Prediction], *, by: Sequence[str] = DEFAULT_DIMENSIONS
) -> list[Summary]:
    """A summary per kind, quantity, subset and the dimensions in `by`, sorted by these."""
    groups: dict[tuple[str, str, str, Key], list[Prediction]] = defaultdict(list)
    for one in predictions:
        key = tuple(DIMENSIONS[name](one) for name in by)
        groups[one.row.kind, one.quantity, one.subset, key].append(one)
    return [
        summary_of(groups[names], kind=names[0], quantity=names[1], subset=names[2], key=names[3])
        for names in sorted(groups)
    ]


def summary_of(
    group: Sequence[Prediction], *, kind: str, quantity: str, subset: str, key: Key
) -> Summary:
    """Summarise the errors of one group of predictions."""
    done = [one for one in group if one.predicted is not None]
    verdicts = bool(done) and done[0].is_verdict
    signed = np.array([one.relative_error for one in done if one.relative_error is not None])
    errors = np.abs(signed)
    some = len(signed) > 0
    by_group = _by_group(done)
    held = held_by_group(done)
    return Summary(
        kind=kind,
        quantity=quantity,
        subset=subset,
        key=key,
        num_predicted=len(done),
        num_from_tables=sum(one.provenance == "measured" for one in done),
        skipped=dict(
            sorted(Counter(one.skipped_because for one in group if one.skipped_because).items())
        ),
        median_error=percentile(errors, 50.0) if some else None,
        mean_error=float(errors.mean()) if some else None,
        bias=float(signed.mean()) if some else None,
        p90_error=percentile(errors, 90.0) if some else None,
        num_groups=len(by_group),
        group_mean_error=float(np.mean([np.mean(one) for one in by_group])) if some else None,
        rows_held=float(np.mean([one for group in held for one in group])) if held else None,
        groups_held=float(np.mean([np.mean(one) for one in held])) if held else None,
        kendall_tau=None if verdicts else tau_within_groups(done),
        confusion=_confusion(done) if verdicts else None,
    )


def _by_group(done: Iterable[Prediction]) -> list[list[float]]:
    """Absolute errors of each group."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in done:
        if one.relative_error is not None:
            groups[group_of(one.row)].append(abs(one.relative_error))
    return list(groups.values())


def held_by_group(done: Iterable[Prediction]) -> list[list[bool]]:
    """Whether each row is inside its interval, by group; rows without an interval are left out."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for one in done:
        interval = interval_of(one)
        if interval is not None:
            groups[group_of(one.row)].append(interval[0] <= one.measured <= interval[1])
    return list(groups.values())


def percentile(values: FloatArray, share: float) -> float:
    """The value below which `share` per cent lie, linear between the two around it."""
    return float(np.percentile(values, share))


def tau_within_groups(predictions: Iterable[Prediction]) -> float | None:
    """Kendall's tau over pairs of runs of the same model on the same GPUs and as many of them."""
    groups: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for one in predictions:
        if one.predicted is not None:
            row = one.row
            alike = (getattr(row, "model", ""), row.gpu_type, getattr(row, "num_gpus", 0))
            groups[alike].append((one.predicted, one.measured))
    pairs = [np.array(group) for group in groups.values() if len(group) > 1]
    return kendall_tau([(pair[:, 0], pair[:, 1]) for pair in pairs])


def kendall_tau(groups: Sequence[tuple[FloatArray, FloatArray]]) -> float | None:
    """Kendall's tau-b, its pairs taken inside groups only; None without an untied pair.

    (concordant − discordant) ÷ √(pairs untied in x × pairs untied in y), summed over the groups
    (Kendall 1945, Biometrika 33, for the treatment of ties).
    """
    agreement = untied_x = untied_y = 0.0
    for x, y in groups:
        above = np.triu_indices(len(x), k=1)
        sign_x = np.sign(np.subtract.outer(x, x)[above])
        sign_y = np.sign(np.subtract.outer(y, y)[above])
        agreement += float(sign_x @ sign_y)
        untied_x += float(np.abs(sign_x).sum())
        untied_y += float(np.abs(sign_y).sum())
    if untied_x == 0.0 or untied_y == 0.0:
        return None
    return agreement / float(np.sqrt(untied_x * untied_y))


def _confusion(done: Sequence[Prediction]) -> Confusion:
    cells = Counter((one.measured > 0.5, (one.predicted or 0.0) > 0.5) for one in done)
    return Confusion(
        ran_as_predicted=cells[False, False],
        failed_as_predicted=cells[True, True],
        failed_but_predicted_to_run=cells[True, False],
        ran_but_predicted_to_fail=cells[False, True],
    )


def skip_counts(predictions: Iterable[Prediction]) -> dict[str, int]:
    """Reason → rows of which something was not predicted, the most frequent first."""
    return _count_rows((one, one.skipped_because) for one in predictions if one.skipped_because)


def assumption_counts(predictions: Iterable[Prediction]) -> dict[str, int]:
    """Assumption → rows predicted under it, the most frequent first."""
    return _count_rows((one, text) for one in predictions for text in one.assumptions)


def _count_rows(reported: Iterable[tuple[Prediction, str]]) -> dict[str, int]:
    """Text → rows it was reported for; a row with several quantities counts once."""
    rows: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for one, text in reported:
        rows[text].add((one.row.kind, one.row.row_id))
    counts = {text: len(ids) for text, ids in rows.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
