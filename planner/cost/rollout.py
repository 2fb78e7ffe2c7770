"""How many sequences run at once while a batch of responses is generated.

B slots, n sequences. As long as sequences wait, a finished one is replaced at once, so all slots
are busy; afterwards the batch shrinks. In units of one slot and with time in cells of the longest
response, admissions follow the renewal equation m = f + f∗m of the length distribution f; both
a constant length (whole waves) and a wide spread (steady flow) come out of it.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.layout import FloatArray, IntArray

CELLS = 32
"""Cells that the longest response is cut into."""
WAVES = 8
"""Longest responses after which the flow counts as steady and is continued linearly."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The renewal process of one length distribution, per slot; index k is a time in cells."""

    cell_tokens: float
    survival: FloatArray
    """[cell]: mean share of responses still running in that cell of their life."""
    admitted: FloatArray
    """[k]: admissions through time k, the first at time 0 included."""
    admissions: FloatArray
    """[k]: admissions at time k."""
    running: FloatArray
    """[k, cell]: responses running in the cells after k if admissions end with those at k."""
    held: FloatArray
    """[k, cell]: their generated tokens."""
    mean_age_tokens: FloatArray
    """[k]: generated tokens of a running response, averaged over the time before k."""
    peak_age_tokens: float
    """The most that a slot's response holds on average over slots, while all slots are busy."""
    mean_tokens: float

    @property
    def age_tokens(self) -> FloatArray:
        """Generated tokens of a response in each cell of its life."""
        return np.asarray((np.arange(CELLS) + 0.5) * self.cell_tokens, dtype=np.float64)

    def peak_tokens(self, prompt_tokens: float) -> float:
        """Tokens per sequence held at the worst moment when all start at once."""
        ends = (np.arange(CELLS) + 1) * self.cell_tokens
        return float(np.max(self.survival * (prompt_tokens + ends)))

    def peak_tokens_refilled(self, prompt_tokens: float) -> float:
        """Tokens per slot held at the worst moment when finished sequences are replaced."""
        return prompt_tokens + self.peak_age_tokens


@dataclass(frozen=True, slots=True)
class Phases:
    """Busy phase and shrinking phase of a batch, one row per candidate."""

    busy_steps: FloatArray
    """Decode steps with all slots running."""
    busy_age_tokens: FloatArray
    shrinking: FloatArray
    """[row, cell]: running share of the slots in each cell of the shrinking phase."""
    shrinking_age_tokens: FloatArray
    """[row, cell]: generated tokens of a running sequence."""


@lru_cache(maxsize=256)
def rollout(lengths: tuple[float, ...], weights: tuple[float, ...]) -> Rollout:
    """The process of a distribution given by points; the last point is the longest response."""
    points, mass = np.array(lengths), np.array(weights)
    cell_tokens = float(points[-1]) / CELLS
    edges = np.arange(CELLS) * cell_tokens
    # Share alive in a cell, averaged over it: tokens are conserved, Σ survival·cell = mean.
    alive = np.clip((points[None, :] - edges[:, None]) / cell_tokens, 0.0, 1.0)
    survival = alive @ mass
    # A response of l tokens frees its slot after l/cell cells, split between the two around it.
    position = np.clip(points / cell_tokens, 0.0, CELLS)
    low = np.minimum(np.floor(position + 1e-9), CELLS).astype(np.int64)
    upper = np.clip(position - low, 0.0, 1.0)
    ends = np.bincount(low, mass * (1 - upper), CELLS + 2)
    ends = ends + np.bincount(low + 1, mass * upper, CELLS + 2)
    ends = ends[: CELLS + 1]

    horizon = WAVES * CELLS
    admissions = np.zeros(horizon + 1)
    # What ends within its first cell is replaced at once, and so on: the factor 1/(1 − f₀).
    again = 1.0 / (1.0 - ends[0])
    admissions[0] = again
    for k in range(1, horizon + 1):
        reach = min(k, CELLS)
        admissions[k] = again * (ends[1 : reach + 1] @ admissions[k - reach : k][::-1])
    # Alive after x whole cells; the cell average above is used for the cell itself.
    running = np.zeros((horizon + 1, CELLS))
    held = np.zeros((horizon + 1, CELLS))
    ages = (np.arange(CELLS) + 0.5) * cell_tokens
    for shift in range(CELLS):  # admitted `shift` cells before k
        part = np.zeros(horizon + 1)
        part[shift:] = admissions[: horizon + 1 - shift]
        running[:, : CELLS - shift] += part[:, None] * survival[shift:]
        held[:, : CELLS - shift] += part[:, None] * (survival * ages)[shift:]
    age = held[:, 0] / np.maximum(running[:, 0], 1e-12)
    mean_age = np.concatenate(([age[0]], np.cumsum(age)[:-1] / np.arange(1, horizon + 1)))
    return Rollout(
        cell_tokens=cell_tokens,
        survival=survival,
        admitted=np.cumsum(admissions),
        admissions=admissions,
        running=running,
        held=held,
        mean_age_tokens=mean_age,
        peak_age_tokens=float(age.max()) + 0.5 * cell_tokens,
        mean_tokens=float(points @ mass),
    )


def phases(process: Rollout, *, sequences: IntArray, slots: IntArray) -> Phases:
    """Busy and shrinking phase for n sequences on B slots (n/B may be below 1)."""
    ratio = sequences / slots
    last = len(process.admitted) - 1
    index = np.minimum(np.searchsorted(process.admitted, ratio - 1e-9), last)
    # Past the horizon the flow is steady: one admission per mean length and slot.
    beyond = np.maximum(ratio - process.admitted[last], 0.0) * process.mean_tokens
    surplus = np.clip(process.admitted[index] - ratio, 0.0, process.admissions[index])
    running = process.running[index] - surplus[:, None] * process.survival
    aged = process.survival * process.age_tokens
    held = process.held[index] - surplus[:, None] * aged
    running = np.maximum(running, 0.0)
    return Phases(
        busy_steps=index * process.cell_tokens + beyond,
        busy_age_tokens=process.mean_age_tokens[index],
        shrinking=running,
        shrinking_age_tokens=np.maximum(held, 0.0) / np.maximum(running, 1e-9),
    )
