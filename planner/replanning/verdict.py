"""Keep or move in a sentence, whose first words say whether that is proven."""

from dataclasses import dataclass
from typing import Literal

from automap.planner.replanning.result import MoveCost
from automap.planner.replanning.warm_search import MARGIN

Word = Literal["keep", "move", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What decides about a placement that is better than the running one."""

    keep: float | None
    """Seconds of an iteration; None: the running plan cannot go on."""
    seconds: float
    cost: MoveCost
    move_by: Literal["restart", "reshard"]
    even: int | None
    """Iterations after which the move is paid back; None: cost and gain are not compared."""
    left: int | None
    """Iterations left; None: not known."""
    proven: bool
    gap: float
    objective: str = ""
    """The objective before and after the move in words; empty where it is the seconds."""

    @property
    def word(self) -> Word:
        """Whether the move pays; undecided where it is not known how many iterations are left."""
        if not self.even:
            return "move"
        if self.left is None:
            return "undecided"
        return "move" if self.even < self.left else "keep"

    def sentence(self) -> str:
        """The verdict and its numbers."""
        if self.keep is None:
            running = "the running plan's GPUs are gone; the best plan found takes"
            return f"{self._head()}: {running} {self.seconds:.2f} s"
        gained = self.keep - self.seconds
        gain = f"{gained:.2f} s ({100 * gained / self.keep:.2g} %) an iteration"
        if self.word != "keep":
            gain = f"{self.keep:.2f} → {self.seconds:.2f} s, {gain}"
        else:
            gain += " could be gained"
        if self.objective:
            gain = f"{self.objective}, {self.keep:.2f} → {self.seconds:.2f} s an iteration"
        return f"{self._head()}: {gain}; {self._paid()}"

    def _head(self) -> str:
        word: str = self.word
        if self.word == "undecided":
            word = f"move if more than {self.even:,} iterations are left"
        return word + proof(proven=self.proven, gap=self.gap)

    def _paid(self) -> str:
        cost = self.cost
        restart = cost.restart if self.move_by == "restart" else None
        about = "about " if restart is not None and restart.estimated and cost.seconds else ""
        takes = f"it takes {about}{cost.seconds:.1f} s"
        if about:
            takes += " (estimated)"
        if self.even is None:
            return takes
        left = "" if self.left is None else f" of {self.left:,}"
        return f"{takes}, paid back after {self.even:,}{left} iterations"


def kept(keep: float, *, proven: bool, gap: float, missed: float | None = None) -> str:
    """The answer where nothing better was found.

    `missed` is a target in seconds that the running plan does not meet.
    """
    if missed is not None:
        found = "no plan meets it" if proven else "the search found no plan that meets it"
        return f"keep: {keep:.2f} s an iteration, which misses the target of {missed:g} s; {found}"
    words = f"no plan is better by more than {100 * MARGIN:.2g} %"
    if not proven:
        words = "the search found nothing better"
    return f"keep{proof(proven=proven, gap=gap)}: {keep:.2f} s an iteration, {words}"


def proof(*, proven: bool, gap: float) -> str:
    """What an answer's first words add where the search ended at its limit, unproven."""
    return "" if proven else f", not proven best (gap {100 * gap:.2g} %)"
