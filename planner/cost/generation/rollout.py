"""How many sequences run at once while a batch of responses is generated.

All sequences arrive together. While the cache is short, the engine runs as many as fit (see
admission.py). The busy phase ends when the last one waits no longer; then the batch shrinks along
the length distribution, as it does from the start where the cache is large enough.

The busy phase depends on the distribution and on the cache per sequence alone, and where sequences
are with an environment between turns on how long that takes; it is followed once per distribution
for a few sizes of the cache and a few such times. What candidates read is interpolated in between.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from automap.planner.cost.generation.admission import BUSY_CELLS, Followed, follow
from automap.planner.cost.generation.survival import (
    LOWEST_LOG,
    Survival,
    representatives,
    variation,
)
from automap.planner.cost.rows import distinct_rows
from automap.planner.layout import FloatArray, IntArray

CELLS = 32
"""Number of cells that the shrinking phase is cut into."""
REPRESENTATIVES = (256, 64)
"""Number of sequences that represent the batch while it is followed: (without turns, with turns).
With turns there are fewer, because they are followed once for each environment time."""
STRIDES = 16
"""Strides per mean response in which the batch is followed; where it has turns, 8 per mean turn."""
MOST_TURNS = 16
"""Turns up to which each has its full number of strides; more turns have fewer strides each."""
LEAST_SHARES = (1 / 16, 1 / 12)
"""Smallest cache that is followed, over that of all sequences: (without turns, with turns). A
smaller one only prolongs a flow that is steady by then."""
ABSENT_TURNS = 2.0 ** np.arange(-2, 6)
"""Environment times that are followed, as multiples of the decode time of a mean turn."""
FINENESS = (4, 2)
"""Cache sizes that are followed per factor of 2: (without turns, with turns)."""
NEARLY_ALL = 0.97
"""Share of the cache that makes nobody wait which is followed as well: where lengths are equal, the
first sequences to wait double the time."""
UNSEEN = 0.005
"""Expected number of sequences, in the whole call, that are longer than the last cell's end."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """How one length distribution is generated on caches of several sizes, for interpolation.

    Arrays with [k] have one entry per cache size, rising up to one with which nobody waits.
    """

    prompt_tokens: float
    mean_tokens: float
    load_variation: float
    """Coefficient of variation of a sequence's cached tokens, summed over its steps: of the load it
    puts on a short cache."""
    peak_tokens: float
    """Cached tokens per sequence at the worst moment, when all start at once."""
    peak_deviation_tokens: float
    """Standard deviation of a sequence's cached tokens at that moment; of n sequences together it
    is √n times as much."""
    edges: FloatArray
    """[cell + 1]: borders of the cells, in tokens since the start of the shrinking phase."""
    capacities: FloatArray
    """[k]: cache tokens per sequence of the replica."""
    busy_tokens: FloatArray
    """[k]: steps of the busy phase × capacity."""
    busy: FloatArray
    """[k, 2 busy cells]: running sequences per token of cache; their mean tokens generated."""
    flow: float
    """Running sequences per token of cache where the flow is steady: used for caches smaller than
    all of `capacities`."""
    evicted_tokens: FloatArray
    """[k]: cached tokens per sequence that were lost and are prefilled again."""
    running: FloatArray
    """[k, cell]: share of the sequences that run in each cell of the shrinking phase."""
    age_tokens: FloatArray
    """[k, cell]: mean tokens that the running sequences have generated."""
    log_ended: FloatArray
    """[k, cell]: ln of the probability that all have ended, per sequence of the replica."""
    absences: FloatArray
    """[k]: number of environment times that nothing hides."""

    @property
    def longest_tokens(self) -> float:
        """Steps of the shrinking phase where nobody waits."""
        return float(self.edges[-1])


@dataclass(frozen=True, slots=True)
class Phases:
    """Busy phase and shrinking phase of a replica, one row per timeline of the batch."""

    sequences: IntArray
    """[row]: sequences of the replica."""
    steps: FloatArray
    """[row, cell]: decode steps of each cell: the busy ones first, then those of the shrinking
    phase, which are expected numbers: the longest sequence may have ended."""
    batch: FloatArray
    """[row, cell]: running sequences, given that one runs."""
    age_tokens: FloatArray
    """[row, cell]: generated tokens of a running sequence."""
    evicted_tokens: FloatArray
    """[row]: tokens that the replica prefills again."""
    absences: FloatArray
    """[row]: number of environment times that nothing hides."""

    def take(self, rows: IntArray) -> "Phases":
        """The given rows, in that order."""
        return Phases(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def or_longer(self, other: "Phases") -> "Phases":
        """Each row of the two that takes more steps: of two limits the one that binds."""
        longer = other.steps.sum(axis=1) > self.steps.sum(axis=1)
        return Phases(
            *(
                np.where(longer.reshape(-1, *[1] * (one.ndim - 1)), getattr(other, name), one)
                for name in self.__dataclass_fields__
                for one in [getattr(self, name)]
            )
        )

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
    """Follow a length distribution given by points, for a call of `num_draws` sequences."""
    stated = (np.array(lengths), np.array(weights), prompt_tokens, num_draws)
    return _rollouts(*stated, turns=1, absent_steps=np.zeros(1))[0]


@lru_cache(maxsize=256)
def rollout_in_slots(
    lengths: tuple[float, ...],
    weights: tuple[float, ...],
    *,
    prompt_tokens: float,
    num_draws: int,
) -> Rollout:
    """Follow a length distribution on a large cache, in engines that run at most so many sequences.

    What is said of tokens of a cache holds for its slots: `capacities` are slots per sequence.
    """
    stated = (np.array(lengths), np.array(weights), prompt_tokens, num_draws)
    return _rollouts(*stated, turns=1, absent_steps=np.zeros(1), in_slots=True)[0]


@lru_cache(maxsize=64)
def rollouts_with_absences(
    lengths: tuple[float, ...],
    weights: tuple[float, ...],
    *,
    prompt_tokens: float,
    num_draws: int,
    turns: int,
) -> tuple[Rollout, ...]:
    """Follow a length distribution in turns, once for each environment time of `ABSENT_TURNS`."""
    points, mass = np.array(lengths), np.array(weights)
    steps = ABSENT_TURNS * float(points @ mass) / turns
    return _rollouts(points, mass, prompt_tokens, num_draws, turns=turns, absent_steps=steps)


def _rollouts(
    points: FloatArray,
    mass: FloatArray,
    prompt_tokens: float,
    num_draws: int,
    *,
    turns: int,
    absent_steps: FloatArray,
    in_slots: bool = False,
) -> tuple[Rollout, ...]:
    """One rollout for each environment time in `absent_steps`."""
    mean = float(points @ mass)
    alive = np.append(1.0, 1.0 - np.cumsum(mass)[:-1])  # at the end of each length's last step
    alive = np.maximum(alive, 0.0)
    worst = int(np.argmax(alive * (prompt_tokens + points)))
    held, share = float(prompt_tokens + points[worst]), float(alive[worst])
    beyond = int(np.searchsorted(-alive, -UNSEEN / num_draws))
    edges = points[min(beyond, len(points) - 1)] * np.linspace(0.0, 1.0, CELLS + 1) ** 1.5
    in_turns = turns > 1
    least = LEAST_SHARES[in_turns] * (1.0 if in_slots else prompt_tokens + mean)
    most = 1.0 if in_slots else share * held
    capacities = _capacities(most, least=least, fineness=FINENESS[in_turns])
    followed = np.append(capacities[:-1], np.inf)  # of the largest, nobody waits, by definition

    sequences = representatives(points, mass, REPRESENTATIVES[in_turns])
    limits = np.tile(followed, len(absent_steps)) * len(sequences)
    what = Followed(
        lengths=sequences.lengths,
        prompt_tokens=prompt_tokens,
        cache_tokens=np.full_like(limits, np.inf) if in_slots else limits,
        slots=limits if in_slots else None,
        turns=turns,
        absent_steps=np.repeat(absent_steps, len(followed)),
        stride=mean / STRIDES / max(min(turns, MOST_TURNS) / 2, 1.0),
    )
    busy = follow(what, (edges[1:] + edges[:-1]) / 2)
    survival = Survival.of(points, mass)
    shrinking = survival.shrinking if turns == 1 else survival.shrinking_in_turns
    running, ages, ended = shrinking(busy.last_ages, sequences, edges)

    def one(rows: slice) -> Rollout:
        slots = busy.running[rows] / capacities[:, None]
        return Rollout(
            prompt_tokens=prompt_tokens,
            mean_tokens=mean,
            load_variation=variation(points * (prompt_tokens + points / 2), mass),
            peak_tokens=share * held,
            peak_deviation_tokens=held * float(np.sqrt(share * (1.0 - share))),
            edges=edges,
            capacities=capacities,
            busy_tokens=busy.steps[rows] * capacities,
            busy=np.hstack([slots, busy.age_tokens[rows]]),
            # Those who proceed side by side go through it all more slowly in a smaller cache.
            flow=float(slots[0, 0 if in_turns else -1 :].mean()),
            evicted_tokens=busy.evicted_tokens[rows],
            running=running[rows] * busy.beside[rows],
            age_tokens=ages[rows],
            log_ended=ended[rows],
            absences=busy.absences[rows],
        )

    size = len(followed)
    return tuple(one(slice(k * size, (k + 1) * size)) for k in range(len(absent_steps)))


def _capacities(most: float, *, least: float, fineness: int) -> FloatArray:
    """Cache tokens per sequence: equally spaced logarithms up to what makes nobody wait."""
    number = max(int(np.ceil(fineness * np.log2(most / least))), 1)
    below = 2.0 ** (np.arange(-number, 0) / fineness)
    return most * np.append(below, (NEARLY_ALL, 1.0))


def phases(
    process: Rollout, *, sequences: IntArray, cache_tokens: FloatArray, num_sequences: int
) -> Phases:
    """Interpolate both phases of a replica [row]; the slowest of the call's replicas counts.

    `sequences` and `cache_tokens` [row] are of one replica, `num_sequences` of the whole call.
    """
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
    longer = process.mean_tokens * shorter / process.flow
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
        absences=between(process.absences, high),
    )


def phases_with_absences(
    processes: tuple[Rollout, ...],
    *,
    absent_turns: FloatArray,
    sequences: IntArray,
    cache_tokens: FloatArray,
    num_sequences: int,
) -> Phases:
    """Interpolate both phases of a replica [row] where sequences are away after each turn.

    `absent_turns` [row] is the environment time over the decode time of a mean turn; `processes`
    are those of the environment times that were followed.
    """
    ratio = np.log2(np.maximum(absent_turns, ABSENT_TURNS[0]) / ABSENT_TURNS[0])
    place = np.minimum(ratio, len(ABSENT_TURNS) - 1.0)
    low = np.minimum(place.astype(np.int64), len(ABSENT_TURNS) - 2)
    found: dict[str, FloatArray] = {}
    for k in range(len(processes)):
        near = np.flatnonzero((low == k) | (low + 1 == k))
        if not len(near):
            continue
        part = phases(
            processes[k],
            sequences=sequences[near],
            cache_tokens=cache_tokens[near],
            num_sequences=num_sequences,
        )
        weight = 1.0 - np.abs(place[near] - k)
        for name in Phases.__dataclass_fields__:
            value = getattr(part, name)
            into = found.setdefault(name, np.zeros((len(place), *value.shape[1:])))
            into[near] += (value.T * weight).T
    found.pop("sequences")
    return Phases(sequences=sequences, **found)


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
