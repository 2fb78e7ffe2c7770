"""When the responses of a generation are out, for calls that take them in chunks as they finish."""

import numpy as np

from planner.cost.generation import GenerationPhases
from planner.cost.rollout import BUSY_CELLS
from planner.layout import FloatArray

SHARE_STEPS = 64
"""Shares are rounded up to so many parts: settings of few kinds can then be compared by their ends
alone, since the one that ends first has every chunk out first."""


def outstanding_seconds(phases: GenerationPhases, chunks: int) -> FloatArray:
    """[row, chunk]: seconds from the moment each chunk but the last is out to the end.

    Chunk k of K is out when k/K of a replica's responses have ended. While the cache is short they
    end evenly; then as many have ended as no longer run. Replicas go alike.
    """
    course = phases.course
    mine = course.phases.take(course.phases_of)
    lasts = mine.steps * course.step_seconds
    ends = np.cumsum(lasts, axis=1)
    ended = 1.0 - mine.batch[:, BUSY_CELLS:] / mine.sequences[:, None]
    ended = np.maximum.accumulate(np.clip(ended, 0.0, 1.0), axis=1)
    busy = ended[:, :1] * np.linspace(0.0, 1.0, BUSY_CELLS + 1)
    middles = ends[:, BUSY_CELLS:] - lasts[:, BUSY_CELLS:] / 2
    nothing, everything = np.zeros((len(ends), 1)), np.ones((len(ends), 1))
    times = np.hstack([nothing, ends[:, :BUSY_CELLS], middles, ends[:, -1:]])
    shares = np.hstack([busy, ended, everything])
    wanted = np.arange(1, chunks) / chunks
    out = np.stack([_reached(shares, times, share) for share in wanted], axis=1)
    left = 1.0 - out / np.maximum(ends[:, -1:], 1e-12)
    seconds: FloatArray = left[course.course_of] * phases.decode.total[:, None]
    return seconds


def _reached(shares: FloatArray, times: FloatArray, share: float) -> FloatArray:
    """Per row the time at which its rising shares reach one, interpolated."""
    rows = np.arange(len(shares))
    high = np.clip((shares < share).sum(axis=1), 1, shares.shape[1] - 1)
    low = high - 1
    step = shares[rows, high] - shares[rows, low]
    part = (share - shares[rows, low]) / np.where(step > 0, step, 1.0)
    start = times[rows, low]
    found: FloatArray = start + np.clip(part, 0.0, 1.0) * (times[rows, high] - start)
    return found


def release_shares(outstanding: FloatArray, seconds: FloatArray) -> FloatArray:
    """[row, chunk]: the part of a call's seconds after which each chunk but the last is out."""
    shares = 1.0 - outstanding / seconds[:, None]
    return np.asarray(np.clip(np.ceil(SHARE_STEPS * shares - 1e-6), 1, SHARE_STEPS) / SHARE_STEPS)


def released_seconds(shares: FloatArray, seconds: FloatArray) -> FloatArray:
    """[row, chunk]: those parts in whole microseconds, rounded up."""
    return np.ceil(1e6 * shares * seconds[:, None] - 1e-3) * 1e-6
