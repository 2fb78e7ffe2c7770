"""How many sequences run at once while a batch of responses is generated.

All sequences arrive together. While the cache is short, the engine runs as many as fit, in the
order of arrival (vLLM): one that grows where no block is free sends the sequence admitted last back
to the queue, and what ends is replaced at once. So those running are the first unfinished ones that
fit. The busy phase ends when the last one waits no longer; then the batch shrinks along the length
distribution, as it does from the start where the cache is large enough.

The busy phase depends on the distribution and on the cache per sequence alone; it is followed once
per distribution for a few sizes of the cache, in strides, over representative sequences. What
candidates read is interpolated in between.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.cost.rows import distinct_rows
from planner.layout import FloatArray, IntArray

CELLS = 32
"""Cells that the shrinking phase is cut into."""
BUSY_CELLS = 4
"""Parts of equal duration that the busy phase is cut into."""
REPRESENTATIVES = 256
"""Sequences that stand for the batch while the busy phase is followed."""
STRIDES = 16
"""Strides per mean response in which it is followed."""
LEAST_SLOTS = 16
"""Of the representatives; a smaller cache only prolongs a flow that is steady by then."""
FINENESS = 4
"""Cache sizes that are followed, per factor of 2."""
NEARLY_ALL = 0.97
"""And this share of what makes nobody wait: where lengths are equal, the first to wait double the
time."""
UNSEEN = 0.005
"""Expected number of sequences, in the whole call, that are longer than the last cell's end."""
LOWEST_LOG = -40.0
"""ln of a probability that is as good as none."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One length distribution and prompt; k counts cache sizes, upwards to one that suffices."""

    prompt_tokens: float
    mean_tokens: float
    variation: float
    """Of the lengths: standard deviation over mean."""
    load_variation: float
    """Of a sequence's cached tokens, summed over its steps: what it takes of a short cache."""
    peak_tokens: float
    """Cached tokens per sequence at the worst moment, when all start at once."""
    peak_deviation_tokens: float
    """Their standard deviation; that of n sequences is √n times as much."""
    edges: FloatArray
    """[cell + 1]: tokens since the start of the shrinking phase."""
    capacities: FloatArray
    """[k]: cache tokens per sequence of the replica."""
    busy_tokens: FloatArray
    """[k]: steps of the busy phase × capacity."""
    busy: FloatArray
    """[k, 2 busy cells]: running sequences per token of cache; their mean tokens generated."""
    evicted_tokens: FloatArray
    """[k]: cached tokens per sequence that were lost and are prefilled again."""
    running: FloatArray
    """[k, cell]: share of the sequences that run in each cell of the shrinking phase."""
    age_tokens: FloatArray
    """[k, cell]: their mean tokens generated."""
    log_ended: FloatArray
    """[k, cell]: ln of the probability that all have ended, per sequence of the replica."""

    @property
    def longest_tokens(self) -> float:
        """Length of the shrinking phase where nobody waits."""
        return float(self.edges[-1])


@dataclass(frozen=True, slots=True)
class Phases:
    """Busy phase and shrinking phase of a replica, one row per candidate."""

    sequences: IntArray
    steps: FloatArray
    """[row, cell]: decode steps of each cell: the busy ones first, then those of the shrinking
    phase, which are expected numbers: the longest sequence may have ended."""
    batch: FloatArray
    """[row, cell]: running sequences, given that one runs."""
    age_tokens: FloatArray
    """[row, cell]: generated tokens of a running sequence."""
    evicted_tokens: FloatArray
    """[row]: tokens that the replica prefills again."""

    def take(self, rows: IntArray) -> "Phases":
        """The given rows, in that order."""
        return Phases(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def deviation_seconds(self, step_seconds: FloatArray, process: Rollout) -> FloatArray:
        """Standard deviation of the seconds of all steps when lengths are drawn anew.

        The longest sequence decides when the shrinking phase ends, the load of all how long the
        busy phase lasts; `step_seconds` [row, cell] is what a step of each cell takes.
        """
        busy = (self.steps * step_seconds)[:, :BUSY_CELLS].sum(axis=1)
        widths = np.diff(process.edges)
        still = self.steps[:, BUSY_CELLS:] / widths
        ends = np.cumsum(step_seconds[:, BUSY_CELLS:] * widths, axis=1)
        starts = ends - step_seconds[:, BUSY_CELLS:] * widths
        mean = (still * (ends - starts)).sum(axis=1)
        square = (still * (ends**2 - starts**2)).sum(axis=1)
        load = busy * process.load_variation / np.sqrt(self.sequences)
        return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0) + load**2), dtype=np.float64)


@lru_cache(maxsize=256)
def rollout(
    lengths: tuple[float, ...],
    weights: tuple[float, ...],
    *,
    prompt_tokens: float,
    num_draws: int,
) -> Rollout:
    """The process of a distribution given by points, for a call of `num_draws` sequences."""
    points, mass = np.array(lengths), np.array(weights)
    mean = float(points @ mass)
    survival = _Survival.of(points, mass)
    alive = np.append(1.0, 1.0 - np.cumsum(mass)[:-1])  # at the end of each length's last step
    alive = np.maximum(alive, 0.0)
    worst = int(np.argmax(alive * (prompt_tokens + points)))
    held, share = float(prompt_tokens + points[worst]), float(alive[worst])
    peak = share * held
    beyond = int(np.searchsorted(-alive, -UNSEEN / num_draws))
    edges = points[min(beyond, len(points) - 1)] * np.linspace(0.0, 1.0, CELLS + 1) ** 1.5

    least = LEAST_SLOTS / REPRESENTATIVES * (prompt_tokens + mean)
    number = max(int(np.ceil(FINENESS * np.log2(peak / least))), 1)
    capacities = peak * np.append(2.0 ** (np.arange(-number, 0) / FINENESS), (NEARLY_ALL, 1.0))
    followed = np.append(capacities[:-1], np.inf)  # of the largest, nobody waits, by definition
    busy = _follow(_representatives(points, mass), prompt_tokens, followed, mean / STRIDES)
    running, ages, ended = survival.shrinking(busy.last_ages, edges)
    return Rollout(
        prompt_tokens=prompt_tokens,
        mean_tokens=mean,
        variation=_variation(points, mass),
        load_variation=_variation(points * (prompt_tokens + points / 2), mass),
        peak_tokens=peak,
        peak_deviation_tokens=held * float(np.sqrt(share * (1.0 - share))),
        edges=edges,
        capacities=capacities,
        busy_tokens=busy.steps * capacities,
        busy=np.hstack([busy.running / capacities[:, None], busy.age_tokens]),
        evicted_tokens=busy.evicted_tokens,
        running=running,
        age_tokens=ages,
        log_ended=ended,
    )


def phases(
    process: Rollout, *, sequences: IntArray, cache_tokens: IntArray, num_sequences: int
) -> Phases:
    """Both phases for n sequences on a replica, of `num_sequences` on all: the slowest counts."""
    capacity = np.maximum(cache_tokens, 1) / sequences
    known = np.clip(capacity, process.capacities[0], process.capacities[-1])
    logs = np.log(process.capacities)
    high = np.clip(np.searchsorted(process.capacities, known), 1, len(logs) - 1)
    part = (np.log(known) - logs[high - 1]) / (logs[high] - logs[high - 1])
    shared, which = distinct_rows(sequences)
    shrinking = _shrinking(process, sequences[shared], num_sequences)
    flat = which * len(logs) + high

    def between(table: FloatArray, index: IntArray) -> FloatArray:
        low = table[index - 1]
        weight = part if table.ndim == 1 else part[:, None]
        found = low + weight * (table[index] - low)
        return np.asarray(found, dtype=np.float64)

    busy = between(process.busy, high)
    # Below the smallest cache the flow is steady: it lasts longer, with as many slots per token.
    shorter = np.maximum(1.0 / capacity - 1.0 / process.capacities[0], 0.0)
    longer = process.mean_tokens * shorter / process.busy[0, BUSY_CELLS - 1]
    busy_steps = between(process.busy_tokens, high) / known + longer
    last = between(shrinking, flat)
    steps, present = last[:, :CELLS], last[:, CELLS : 2 * CELLS]
    running, aged = last[:, 2 * CELLS : 3 * CELLS], last[:, 3 * CELLS :]
    slots = np.minimum(busy[:, :BUSY_CELLS] * cache_tokens[:, None], sequences[:, None])
    busy_cells = np.repeat(busy_steps[:, None] / BUSY_CELLS, BUSY_CELLS, axis=1)
    return Phases(
        sequences=sequences,
        steps=np.concatenate([busy_cells, steps], axis=1),
        batch=np.maximum(np.concatenate([slots, running / np.maximum(present, 1e-9)], axis=1), 1.0),
        age_tokens=np.concatenate([busy[:, BUSY_CELLS:], aged / np.maximum(running, 1e-9)], axis=1),
        evicted_tokens=between(process.evicted_tokens, high) * sequences,
    )


def _shrinking(process: Rollout, sequences: IntArray, num_sequences: int) -> FloatArray:
    """[batch × k, 4 cells]: expected steps, probability of running, running, their tokens."""
    ended = process.log_ended * sequences[:, None, None]
    own = -np.expm1(np.maximum(ended, LOWEST_LOG))
    one = -np.expm1(np.maximum(process.log_ended * num_sequences, LOWEST_LOG))
    any_of_all = np.broadcast_to(one, own.shape)
    running = process.running * sequences[:, None, None]
    parts = (any_of_all * np.diff(process.edges), own, running, running * process.age_tokens)
    side_by_side: FloatArray = np.concatenate(parts, axis=2).reshape(-1, 4 * CELLS)
    return side_by_side


@dataclass(frozen=True, slots=True)
class _Survival:
    """P(length > x), and its integral from 0."""

    points: FloatArray
    above: FloatArray
    """Share longer than each point."""
    integral: FloatArray

    @staticmethod
    def of(points: FloatArray, mass: FloatArray) -> "_Survival":
        starts = np.append(0.0, points)
        above = np.maximum(1.0 - np.append(0.0, np.cumsum(mass)), 0.0)
        above[-1] = 0.0
        integral = np.append(0.0, np.cumsum(above[:-1] * np.diff(starts)))
        return _Survival(starts, above, integral)

    def shrinking(
        self, ages: list[FloatArray], edges: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(running share, mean age, ln of the probability that all ended) per cache and cell."""
        size = (len(ages), len(edges) - 1)
        running, held, ended = np.zeros(size), np.zeros(size), np.zeros(size)
        middles = (edges[1:] + edges[:-1]) / 2
        for k, now in enumerate(ages):
            reached = np.interp(now[:, None] + edges, self.points, self.integral)
            at = np.searchsorted(self.points, now, side="right") - 1
            still = np.diff(reached, axis=1) / np.diff(edges)
            still = np.clip(still / np.maximum(self.above[at], 1e-12)[:, None], 0.0, 1.0)
            running[k] = still.sum(axis=0) / REPRESENTATIVES
            held[k] = (still * (now[:, None] + middles)).sum(axis=0) / REPRESENTATIVES
            logs = np.log(np.maximum(1.0 - still, np.exp(LOWEST_LOG)))
            ended[k] = logs.sum(axis=0) / REPRESENTATIVES
        return running, held / np.maximum(running, 1e-12), ended


def _variation(values: FloatArray, mass: FloatArray) -> float:
    mean = float(values @ mass)
    return float(np.sqrt(max(float((values - mean) ** 2 @ mass), 0.0))) / mean


def _representatives(points: FloatArray, mass: FloatArray) -> FloatArray:
    """Lengths of equally probable parts of the distribution, well mixed."""
    levels = np.linspace(0.0, 1.0, REPRESENTATIVES + 1)
    reached = np.append(0.0, np.cumsum(mass))
    tokens = np.append(0.0, np.cumsum(points * mass))
    means = np.diff(np.interp(levels, reached, tokens)) * REPRESENTATIVES
    golden = (np.arange(REPRESENTATIVES) * (np.sqrt(5.0) - 1.0) / 2.0) % 1.0
    mixed: FloatArray = means[np.argsort(golden)]
    return mixed


@dataclass(frozen=True, slots=True)
class _Busy:
    """The busy phase per cache size, per sequence."""

    steps: FloatArray
    running: FloatArray
    age_tokens: FloatArray
    evicted_tokens: FloatArray
    last_ages: list[FloatArray]
    """Tokens generated of each sequence that runs when the last one has been admitted."""


def _follow(lengths: FloatArray, prompt: float, capacities: FloatArray, stride: float) -> _Busy:
    """The first unfinished sequences that fit run, in strides, until nobody has to wait again."""
    count = len(lengths)
    age = np.zeros((len(capacities), count))
    last = age.copy()
    cache = capacities[:, None] * count
    busy_until = np.zeros(len(capacities), dtype=np.int64)
    shares, ages, evicted = [], [], []
    unfinished = np.ones_like(age, dtype=bool)
    first = np.zeros(len(capacities), dtype=np.int64)
    rows = np.arange(len(capacities))
    while unfinished.any():
        held = np.where(unfinished, prompt + age + stride / 2, 0.0)
        running = unfinished & (np.cumsum(held, axis=1) <= cache * (1 + 1e-9))
        running[rows, first] |= unfinished[rows, first]  # a cache holds one at least
        waits = (running != unfinished).any(axis=1)
        # A sequence in its last stride ends within it.
        step = np.where(running, np.minimum(lengths - age, stride), 0.0)
        shares.append(step.sum(axis=1) / (stride * count))
        number = np.maximum(running.sum(axis=1), 1)
        ages.append(np.where(running, age + stride / 2, 0.0).sum(axis=1) / number)
        evicted.append(np.where(waits, step.sum(axis=1) / count, 0.0))
        age += step
        unfinished = age < lengths - 1e-9
        first = unfinished.argmax(axis=1)
        busy_until[waits] = len(shares)
        last[waits] = age[waits]
    return _Busy(
        steps=np.asarray(busy_until * stride, dtype=np.float64),
        running=_parts(np.array(shares), busy_until),
        age_tokens=_parts(np.array(ages), busy_until),
        evicted_tokens=np.array(evicted).sum(axis=0),
        last_ages=[row[row < lengths - 1e-9] for row in last],
    )


def _parts(series: FloatArray, until: IntArray) -> FloatArray:
    """[k, part]: means of the series [time, k] over equal parts of the time until then."""
    sums = np.vstack([np.zeros(series.shape[1]), np.cumsum(series, axis=0)])
    times = np.arange(len(sums))
    found = np.zeros((series.shape[1], BUSY_CELLS))
    for k, end in enumerate(until):
        edges = np.linspace(0.0, max(float(end), 1.0), BUSY_CELLS + 1)
        found[k] = np.diff(np.interp(edges, times, sums[:, k])) / np.diff(edges)
    return found
