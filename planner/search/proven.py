"""What a search came to: the best that is known, and how good it provably is."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Proven(Generic[T]):
    """The best solution found and what is proven about it.

    Where a search was given a cutoff, it knows nothing of what lies above it: "none" then means
    none below the cutoff.
    """

    solution: T | None
    """The best solution found; None: there is none, or none was found in time."""
    lower_bound: float
    """No solution has a lower objective; in the objective's own unit."""
    is_proven: bool
    """True: the search was exhaustive: the solution is the best one, or there is none."""
    deterministic_seconds: float = 0.0
    """The solver's work, in its own unit, which repeats on any machine."""
