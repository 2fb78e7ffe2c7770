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
    in_turn: bool = False
    """All of a model is on the host while others use its GPUs, and nothing of one that has GPUs
    of its own."""

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

    def offloads(
        self, roles: Collection[str], trained: Collection[str]
    ) -> dict[str, frozenset[str]]:
        """Role → what of it may be on the host, of models for which that is not free."""
        if not self.in_turn:
            return dict.fromkeys(trained, self.offload(trained))
        return {
            role: frozenset({"weights" if self._shares(role, roles) else "none"})
            for role in roles
            if any(role in group for group in self.groups)
        }

    def _shares(self, role: str, roles: Collection[str]) -> bool:
        """Whether other models, or rollouts, are on a model's GPUs."""
        group = next(each for each in self.groups if role in each)
        others = self.joined and len(group & set(roles)) > 1
        return others or (not self.apart and "actor" in group)

    @staticmethod
    def _pairs(group: frozenset[str], roles: Collection[str]) -> list[tuple[str, str]]:
        return list(combinations(sorted(group & set(roles)), 2))
