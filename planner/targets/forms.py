"""Ways in which a target lets models share GPUs, where these are a list and not one rule."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Form:
    """One way: groups of roles that share no GPU with one another, and where rollouts are."""

    name: str
    """What it is, in words."""
    apart: bool
    """Rollouts have GPUs of their own; otherwise they are on their model's."""
    groups: tuple[frozenset[str], ...]
    joined: bool
    """All models of a group are on one range; otherwise each has that, or one of its own."""
    stale: bool | None
    """Only with `search.staleness`, or only without; None: either."""
    needs: str | None = None
    """A role without which a job does not have it."""

    def suits(self, roles: Collection[str], *, staleness: int) -> bool:
        """Whether a job with these models may take it."""
        return self.stale in (None, staleness > 0) and (self.needs is None or self.needs in roles)

    def together(self, roles: Collection[str]) -> list[tuple[str, str]]:
        """Pairs of models on one range."""
        pairs = [pair for group in self.groups for pair in self._pairs(group, roles)]
        return pairs if self.joined else []

    def separate(self, roles: Collection[str]) -> list[tuple[str, str]]:
        """Pairs of models that share no GPU."""
        inside = {pair for group in self.groups for pair in self._pairs(group, roles)}
        every = frozenset[str]().union(*self.groups)
        return [pair for pair in self._pairs(every, roles) if pair not in inside]

    def offload(self, trained: Collection[str]) -> frozenset[str]:
        """What of models that train may be on the host.

        Several on one range take turns, with the optimizer of each on the host between; on several
        ranges they train side by side, which is only so while nothing goes there.
        """
        if len(trained) < 2:
            return frozenset({"none", "optimizer"})
        shared = self.joined and any(set(trained) <= group for group in self.groups)
        return frozenset({"optimizer" if shared else "none"})

    @staticmethod
    def _pairs(group: frozenset[str], roles: Collection[str]) -> list[tuple[str, str]]:
        return list(combinations(sorted(group & set(roles)), 2))
