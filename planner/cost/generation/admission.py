"""The busy phase of a short cache: which sequences an engine runs until nobody waits any more.

The engine runs as many sequences as fit, in the order of arrival (vLLM): one that grows where no
block is free sends the sequence admitted last back to the queue, and what ends is replaced at once.
So those running are the first of the present and unfinished ones that fit. One whose turn ends
leaves for its environment, without its blocks, and comes back to the end of the queue; what it had
cached is lost if the cache was full meanwhile.

Representative sequences are followed in strides of equal duration, for several sizes of the cache
side by side.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from automap.planner.layout import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

BUSY_CELLS = 4
"""Parts of equal duration that the busy phase is cut into."""


@dataclass(frozen=True, slots=True)
class Busy:
    """The busy phase and what follows it: [row] is a cache size; numbers are per sequence."""

    steps: FloatArray
    """[row]: decode steps of the busy phase; steps in which no sequence runs are left out."""
    running: FloatArray
    """[row, part]: running sequences over all."""
    age_tokens: FloatArray
    """[row, part]: generated tokens of a running sequence."""
    evicted_tokens: FloatArray
    """[row]: cached tokens that were lost and are prefilled again."""
    last_ages: FloatArray
    """[row, representative]: tokens generated when the last one has been admitted."""
    beside: FloatArray
    """[row, cell]: share of the unfinished sequences that run beside the one that ends last."""
    absences: FloatArray
    """[row]: number of environment times during which no sequence runs."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Input of `follow`: representative sequences, and the cache sizes [row] they are run on."""

    lengths: FloatArray
    prompt_tokens: float
    cache_tokens: FloatArray
    """[row]: tokens that the cache holds, for all representatives together; inf: no limit."""
    turns: int
    absent_steps: FloatArray
    """[row]: environment time after each turn, in decode steps."""
    stride: float
    """Decode steps that are taken at once."""
    slots: FloatArray | None = None
    """[row]: representatives that may run at once, with one turn; None: as many as the cache
    holds."""


def follow(what: Followed, cells: FloatArray) -> Busy:
    """Run the representatives to their end.

    `cells` are the decode steps since the end of the busy phase at which `Busy.beside` is wanted.
    """
    batch = _Batch(what)
    while batch.unfinished.any():
        batch.proceed(*batch.admitted())
    steps = (batch.busy_until - batch.idle_until) * what.stride
    rest = np.where(batch.last < what.lengths - 1e-9, what.lengths - batch.last, 0.0)
    absent = np.maximum(what.absent_steps, 1e-9)
    absences = (batch.ends.max(axis=1) - steps - rest.max(axis=1)) / absent
    somebody = np.array(batch.shares) > 0.0
    return Busy(
        steps=np.asarray(steps, dtype=np.float64),
        running=_parts(np.array(batch.shares), somebody, batch.busy_until),
        age_tokens=_parts(np.array(batch.ages), somebody, batch.busy_until),
        evicted_tokens=np.where(np.isinf(what.cache_tokens), 0.0, batch.evicted),
        last_ages=batch.last,
        beside=_beside(batch, rest, cells),
        absences=np.clip(absences, 0.0, what.turns) if what.turns > 1 else np.ones(len(steps)),
    )


@dataclass
class _Batch:
    """State of the representatives [row, representative]; `now` counts the steps taken so far."""

    what: Followed
    now: float = 0.0
    shares: list[FloatArray] = field(default_factory=list)
    """For each stride, running sequences over all [row]."""
    ages: list[FloatArray] = field(default_factory=list)
    ran: list[BoolArray] = field(default_factory=list)
    """For each stride, which sequences ran [row, representative]."""

    def __post_init__(self) -> None:
        rows = len(self.what.cache_tokens)
        size = (rows, len(self.what.lengths))
        self.age, self.turn, self.last = np.zeros(size), np.ones(size), np.zeros(size)
        self.arrival, self.ends = np.zeros(size), np.zeros(size)
        self.is_away, self.was_running = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        self.left_over, self.evicted = np.zeros(rows), np.zeros(rows)
        self.last_full = np.full(rows, -1.0)
        self.busy_until, self.idle_until, self.idle = np.zeros((3, rows), dtype=np.int64)

    @property
    def unfinished(self) -> BoolArray:
        return np.asarray(self.age < self.what.lengths - 1e-9)

    def admitted(self) -> tuple[BoolArray, BoolArray]:
        """(present, running) sequences [row, representative] of the next stride."""
        what = self.what
        present = self.unfinished & (self.arrival <= self.now + what.stride / 2)
        held = np.where(present, what.prompt_tokens + self.age + what.stride / 2, 0.0)
        limit = what.cache_tokens[:, None] * (1 + 1e-9)
        if what.turns == 1:  # all arrive together: they stand in order
            fits, first = np.cumsum(held, axis=1) <= limit, present.argmax(axis=1)
            if what.slots is not None:
                fits &= np.cumsum(present, axis=1) <= what.slots[:, None]
        else:
            order = np.argsort(np.where(present, self.arrival, np.inf), axis=1, kind="stable")
            fits = np.empty_like(present)
            in_order = np.cumsum(np.take_along_axis(held, order, axis=1), axis=1) <= limit
            np.put_along_axis(fits, order, in_order, axis=1)
            first = order[:, 0]
        rows = np.arange(len(first))
        fits[rows, first] = True  # a cache holds one at least
        return present, present & fits

    def proceed(self, present: BoolArray, running: BoolArray) -> None:
        """Take one stride: the running sequences grow, end, or finish a turn."""
        what, count = self.what, len(self.what.lengths)
        waits = (running != present).any(axis=1)
        self._lose(present, waits)
        new = running & ~self.was_running
        # A slot that became free within the last stride has been taken since then.
        late = np.minimum(self.left_over / np.maximum(new.sum(axis=1), 1), what.stride)
        allowed = what.stride + np.where(new, late[:, None], 0.0)
        until = what.lengths * (self.turn / what.turns) - self.age
        step = np.where(running, np.minimum(until, allowed), 0.0)
        ended = running & (until <= allowed + 1e-9)
        self.left_over = np.where(ended, allowed - step, 0.0).sum(axis=1)
        done = step.sum(axis=1) / count
        number = np.maximum(running.sum(axis=1), 1)
        self.shares.append(done / what.stride)
        self.ages.append(np.where(running, self.age + step / 2, 0.0).sum(axis=1) / number)
        self.ran.append(running)
        # What grows in a full cache sends as many tokens away.
        self.evicted += np.where(waits, done, 0.0)
        self.age += step
        ends = self.now + np.maximum(what.stride - (allowed - step), 0.0)
        back = ends + what.absent_steps[:, None]
        self.ends = np.where(ended, back, self.ends)
        self.arrival = np.where(ended, back, self.arrival)
        self.turn += ended
        self.is_away |= ended
        self.was_running = running & ~ended
        self.now += what.stride
        self.idle += ~running.any(axis=1)
        self.busy_until[waits], self.idle_until[waits] = len(self.shares), self.idle[waits]
        self.last[waits] = self.age[waits]

    def _lose(self, present: BoolArray, waits: BoolArray) -> None:
        """Count the tokens of sequences that return to a cache which was full since they left.

        Their blocks were taken, so they are prefilled again.
        """
        returned = present & self.is_away
        left = self.arrival - self.what.absent_steps[:, None]
        lost = returned & (left <= self.last_full[:, None])
        tokens = np.where(lost, self.what.prompt_tokens + self.age, 0.0).sum(axis=1)
        self.evicted += tokens / len(self.what.lengths)
        self.is_away &= ~returned
        self.last_full[waits] = self.now


def _beside(batch: _Batch, rest: FloatArray, cells: FloatArray) -> FloatArray:
    """Share of the unfinished sequences [row, cell] that run beside the one that ends last.

    Turns of different lengths fall out of step: while the longest runs, others are away.
    """
    found = np.ones((len(rest), len(cells)))
    if batch.what.turns == 1:
        return found
    ran = np.array(batch.ran)
    for row, last in enumerate(batch.ends.argmax(axis=1)):
        after = ran[batch.busy_until[row] :, row]
        counts = after.sum(axis=1)[after[:, last]]
        if len(counts):
            steps = (np.arange(len(counts)) + 0.5) * batch.what.stride
            unfinished = np.maximum((rest[row] > steps[:, None]).sum(axis=1), 1)
            found[row] = np.interp(cells, steps, np.minimum(counts / unfinished, 1.0))
    return found


def _parts(series: FloatArray, somebody: BoolArray, until: IntArray) -> FloatArray:
    """[row, part]: means of the series [time, row] over equal parts of the time until then.

    Time in which nobody runs is left out.
    """
    found = np.zeros((series.shape[1], BUSY_CELLS))
    for k, end in enumerate(until):
        values = series[:end, k][somebody[:end, k]]
        if len(values):
            sums = np.append(0.0, np.cumsum(values))
            edges = np.linspace(0.0, len(values), BUSY_CELLS + 1)
            found[k] = np.diff(np.interp(edges, np.arange(len(sums)), sums)) / np.diff(edges)
    return found
