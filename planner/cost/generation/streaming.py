"""Output timeline of a generation: when its responses are ready, and a tail on fewer replicas.

Calls may take responses in chunks as they finish (`outstanding_seconds`). And once most responses
have ended, those that still run may move together onto a part of the replicas, so that the GPUs of
the others are free for other calls while the tail goes on (RLHFuse, Zhong et al. 2024,
arXiv:2409.13221). What moves is prefilled again where it goes on.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from automap.planner.cost.estimates import SecondsColumns
from automap.planner.cost.generation.admission import BUSY_CELLS
from automap.planner.cost.generation.generate_call import GenerationPhases
from automap.planner.cost.generation.rollout import Phases
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray

SHARE_STEPS = 64
"""Shares of a call's seconds are rounded up to multiples of 1/64. Settings with equal shares can
then be compared by their ends alone: the one that ends first has every chunk ready first."""


@dataclass(frozen=True, slots=True)
class TailSetting:
    """How a generation splits into a main phase and a tail (the drain phase)."""

    ratio: int
    """GPUs of the main phase per GPU of the tail."""
    ended_share: float
    """Share of the responses that end before the split."""
    tensor_factor: int = 1
    """Tensor size of the tail over that of the main phase; so many replicas become one."""

    @property
    def gathers(self) -> int:
        """Replicas of the main phase per replica of the tail."""
        return self.ratio * self.tensor_factor

    def widened(self, generation_layouts: GenerationLayouts) -> GenerationLayouts:
        """Generation layouts on all GPUs with the tensor size of the tail."""
        tensor = generation_layouts.tensor_parallel_size * self.tensor_factor
        data = np.maximum(generation_layouts.data_parallel_size // self.tensor_factor, 1)
        return replace(generation_layouts, tensor_parallel_size=tensor, data_parallel_size=data)


TAILS = (
    TailSetting(2, 0.75),
    TailSetting(2, 0.9),
    TailSetting(4, 0.9),
    TailSetting(4, 0.97),
    TailSetting(1, 0.75, 2),
    TailSetting(1, 0.9, 2),
    TailSetting(1, 0.9, 4),
    TailSetting(1, 0.97, 4),
)
"""The tails that are tried: on fewer GPUs, or with a larger tensor size on all of them."""


@dataclass(frozen=True, slots=True)
class TailEstimates:
    """What a tail changes in a generation [candidate]."""

    possible: npt.NDArray[np.bool_]
    """Whether the replicas can be split, and the cache of the tail's holds what moves there."""
    extra: SecondsColumns
    """Seconds added to those without a tail."""
    seconds_after_split: FloatArray
    """Seconds from the split to the end."""
    moving_seconds: FloatArray
    """The part of `seconds_after_split` until what moves is prefilled again, weights included."""
    weight_bytes: IntArray
    """Bytes of weights per GPU in the tail's layout, beside those of the main phase; 0 where the
    layout stays."""
    outstanding: FloatArray | None
    """What `outstanding_seconds` says of the generation with its tail, if it was asked for."""

    def times(self, factor: float) -> "TailEstimates":
        """All seconds multiplied by a factor."""
        return replace(
            self,
            extra=self.extra.times(factor),
            seconds_after_split=factor * self.seconds_after_split,
            moving_seconds=factor * self.moving_seconds,
            outstanding=None if self.outstanding is None else factor * self.outstanding,
        )


def outstanding_seconds(phases: GenerationPhases, chunks: int) -> FloatArray:
    """Seconds [candidate, chunk] from the moment each chunk but the last is ready to the end.

    Chunk k of K is ready when k/K of a replica's responses have ended. While the cache is short
    they end evenly; then as many have ended as no longer run. All replicas proceed alike.
    """
    mine = _timelines(phases)
    lasts = mine.steps * phases.timeline.step_seconds
    left, _ = _left(mine, lasts, chunks)
    rows: FloatArray = left[phases.timeline.timeline_of] * _waiting_factor(phases)[:, None]
    return rows


def price_tail(
    phases: GenerationPhases,
    tail: TailSetting,
    after: GenerationPhases,
    generation_layouts: GenerationLayouts,
    *,
    chunks: int | None,
    relayout_seconds: FloatArray | IntArray | float = 0.0,
) -> TailEstimates:
    """Price a generation's tail: larger batches on fewer replicas, and prompts read once more.

    The split is where a cell of the shrinking phase begins. A replica of the tail decodes `gathers`
    times the batch that one had before; the responses of the others are prefilled again there, with
    what they have generated. `after` are the phases of the tail's replicas (those of the rows
    themselves where the tensor size stays); where it changes, no cache can stay, and all that run
    are prefilled again, once the weights are laid out anew in `relayout_seconds`. With a pipeline
    the replicas of a range interleave, so there is no tail; nor where expert groups reach over the
    border.
    """
    timeline, mine = phases.timeline, _timelines(phases)
    first = split_cell(phases, tail)
    late = np.arange(mine.steps.shape[1]) >= first[:, None]
    cached = timeline.process.prompt_tokens + mine.age_tokens
    more = _more_per_step(phases, after, mine.batch, cached, tail.gathers)
    slower = [np.where(late, part, 0.0) * mine.steps for part in more]
    lasts = mine.steps * timeline.step_seconds + sum(slower)
    at = np.minimum(first, mine.steps.shape[1] - 1)[:, None]
    held = mine.batch * cached * np.where(late, tail.gathers, 0.0)
    moving = tail.gathers if tail.tensor_factor > 1 else tail.gathers - 1
    tokens = np.take_along_axis(mine.batch * cached, at, axis=1)[:, 0] * moving
    again = tokens[timeline.timeline_of] / after.prefill_tokens
    factor = _waiting_factor(phases)
    zero = np.zeros(len(again))
    compute, communication, overhead = (
        factor * part.sum(axis=1)[timeline.timeline_of] for part in slower
    )
    extra = SecondsColumns(
        compute=after.prefill.compute * again + compute,
        communication=after.prefill.communication * again + communication,
        bubble=zero,
        optimizer=zero,
        transition=zero + relayout_seconds,
        overhead=after.prefill.overhead * again + overhead,
        between=zero,
    )
    moved = after.prefill.total * again + relayout_seconds
    tail_seconds = np.where(late, lasts, 0.0).sum(axis=1)
    outstanding = None
    if chunks is not None:
        left, out = _left(mine, lasts, chunks)
        before = out < (lasts.sum(axis=1) - tail_seconds)[:, None]
        outstanding = left[timeline.timeline_of] * factor[:, None]
        outstanding = outstanding + np.where(before[timeline.timeline_of], moved[:, None], 0.0)
    return TailEstimates(
        possible=(first < mine.steps.shape[1])[timeline.timeline_of]
        & _parts_replicas(generation_layouts, tail)
        & (held.max(axis=1)[timeline.timeline_of] <= after.running.cache_tokens),
        extra=extra,
        seconds_after_split=factor * tail_seconds[timeline.timeline_of] + moved,
        moving_seconds=moved,
        weight_bytes=np.zeros(len(again), dtype=np.int64),
        outstanding=outstanding,
    )


def split_cell(phases: GenerationPhases, tail: TailSetting) -> IntArray:
    """Index of the cell with which a tail begins [timeline]."""
    ended = _ended(_timelines(phases))
    return np.asarray(BUSY_CELLS + (ended < tail.ended_share).sum(axis=1), dtype=np.int64)


def ended_share(phases: GenerationPhases) -> FloatArray:
    """Share of the responses that have ended with the busy phase [candidate]."""
    return np.asarray(_ended(_timelines(phases))[phases.timeline.timeline_of, 0], dtype=np.float64)


def _parts_replicas(
    generation_layouts: GenerationLayouts, tail: TailSetting
) -> npt.NDArray[np.bool_]:
    """Rows where whole replicas remain after the split, and no expert group spans both parts."""
    kept_gpus = (
        generation_layouts.tensor_parallel_size
        * generation_layouts.data_parallel_size
        // tail.ratio
    )
    parts: npt.NDArray[np.bool_] = (
        (generation_layouts.pipeline_parallel_size == 1)
        & (generation_layouts.data_parallel_size % tail.gathers == 0)
        & (kept_gpus % generation_layouts.expert_parallel_size == 0)
    )
    return parts


def _timelines(phases: GenerationPhases) -> Phases:
    """The distinct timelines of the batch."""
    return phases.timeline.phases


def _waiting_factor(phases: GenerationPhases) -> FloatArray:
    """Decode seconds, environment times included, per second of steps [candidate]."""
    timeline, mine = phases.timeline, _timelines(phases)
    steps = (mine.steps * timeline.step_seconds).sum(axis=1)
    factor: FloatArray = phases.decode.total / np.maximum(steps[timeline.timeline_of], 1e-12)
    return factor


def _ended(mine: Phases) -> FloatArray:
    """Share of the responses that ended by the middle of each shrinking cell [timeline, cell]."""
    ended = 1.0 - mine.batch[:, BUSY_CELLS:] / mine.sequences[:, None]
    rising: FloatArray = np.maximum.accumulate(np.clip(ended, 0.0, 1.0), axis=1)
    return rising


def _more_per_step(
    phases: GenerationPhases,
    after: GenerationPhases,
    batch: FloatArray,
    cached: FloatArray,
    gathers: int,
) -> list[FloatArray]:
    """Seconds by part [timeline, cell] that a step with `gathers` times the batch takes longer.

    Less than 0 where a larger tensor size makes it faster.
    """
    shapes = np.zeros((2, len(batch)), dtype=np.int64)
    shapes[0, phases.timeline.timeline_of] = phases.shape
    shapes[1, phases.timeline.timeline_of] = after.shape
    small = phases.tables.at(shapes[0, :, None], batch, cached)
    large = after.tables.at(shapes[1, :, None], gathers * batch, cached)
    return [
        *(more - less for more, less in zip(large, small, strict=True)),
        phases.engine.sequence_seconds * (gathers - 1) * batch,
    ]


def _left(mine: Phases, lasts: FloatArray, chunks: int) -> tuple[FloatArray, FloatArray]:
    """(seconds from a chunk being ready to the end, seconds until it is) [timeline, chunk]."""
    ends, ended = np.cumsum(lasts, axis=1), _ended(mine)
    busy = ended[:, :1] * np.linspace(0.0, 1.0, BUSY_CELLS + 1)
    middles = ends[:, BUSY_CELLS:] - lasts[:, BUSY_CELLS:] / 2
    nothing, everything = np.zeros((len(ends), 1)), np.ones((len(ends), 1))
    times = np.hstack([nothing, ends[:, :BUSY_CELLS], middles, ends[:, -1:]])
    shares = np.hstack([busy, ended, everything])
    wanted = np.arange(1, chunks) / chunks
    out = np.stack([_reached(shares, times, share) for share in wanted], axis=1)
    return ends[:, -1:] - out, out


def _reached(shares: FloatArray, times: FloatArray, share: float) -> FloatArray:
    """Time [row] at which each row's rising shares reach `share`, interpolated."""
    rows = np.arange(len(shares))
    high = np.clip((shares < share).sum(axis=1), 1, shares.shape[1] - 1)
    low = high - 1
    step = shares[rows, high] - shares[rows, low]
    part = (share - shares[rows, low]) / np.where(step > 0, step, 1.0)
    start = times[rows, low]
    found: FloatArray = start + np.clip(part, 0.0, 1.0) * (times[rows, high] - start)
    return found


def ready_shares(outstanding: FloatArray, seconds: FloatArray) -> FloatArray:
    """Share of a call's seconds [row, chunk] after which each chunk is ready, rounded up to 1/64.

    `outstanding` [row, chunk] are the seconds from then to the end, `seconds` [row] the call's.
    """
    shares = 1.0 - outstanding / seconds[:, None]
    return np.asarray(np.clip(np.ceil(SHARE_STEPS * shares - 1e-6), 1, SHARE_STEPS) / SHARE_STEPS)


def ready_seconds(shares: FloatArray, seconds: FloatArray) -> FloatArray:
    """Seconds [row, chunk] after which each chunk is ready, in whole microseconds, rounded up."""
    return np.ceil(1e6 * shares * seconds[:, None] - 1e-3) * 1e-6
