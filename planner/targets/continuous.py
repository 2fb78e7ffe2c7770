"""How software generates without batches (`search.continuous_rollouts`)."""

from dataclasses import dataclass

from automap.planner.spec import SearchSpec


@dataclass(frozen=True, slots=True)
class ContinuousRules:
    """What a target that generates without batches does, and does not leave to the spec."""

    only: bool = False
    """Where the staleness leaves room, it never generates in batches."""
    keeps_cache: bool = False
    """Whether responses in flight keep their cache when weights come, where a spec does not say."""
    cache_is_asked: bool = False
    """Whether a spec may say so; otherwise it is always as `keeps_cache` has it."""
    trains_one_batch: bool = True
    """A batch is scored and trained on before the next is taken. Else so many may be finished and
    not yet trained on as half of the staleness allows."""
    waits_for_oldest: bool = True
    """A batch waits for responses that would be too old for the next. Else the staleness bounds how
    many are in flight, and a few long ones may be older."""
    not_algorithms: frozenset[str] = frozenset()
    """Algorithms that it generates for in batches alone."""

    def refuses(self, search: SearchSpec, algorithm: str | None) -> tuple[str, str] | None:
        """(field, why) of the first setting that it cannot run; None: it runs all."""
        field = "search.continuous_rollouts"
        if not search.continuous_rollouts:
            if self._never_drains(search):
                why = f"with staleness {search.staleness} it never generates in batches"
                return field, f"it is false, and {why}"
            return None
        if algorithm in self.not_algorithms:
            return field, f"it is true, and {algorithm} drains batches"
        kept = search.keep_cache_at_sync
        if not self.cache_is_asked and kept not in (None, self.keeps_cache):
            found = "true, and new weights drop" if kept else "false, and new weights keep"
            return "search.keep_cache_at_sync", f"it is {found} the cache of what is in flight"
        return None

    def left_open(self, search: SearchSpec) -> dict[str, bool]:
        """What a target does where a spec does not say it."""
        found: dict[str, bool] = {}
        if search.continuous_rollouts is None and self._never_drains(search):
            found["continuous_rollouts"] = True
        flows = found.get("continuous_rollouts", search.continuous_rollouts)
        if flows and search.keep_cache_at_sync is None:
            found["keep_cache_at_sync"] = self.keeps_cache
        return found

    def decides(self, search: SearchSpec) -> dict[str, None]:
        """Settings of a search that a target decides, as left open."""
        found: dict[str, None] = {}
        if self._never_drains(search) or not search.staleness:
            found["continuous_rollouts"] = None
        if not self.cache_is_asked:
            found["keep_cache_at_sync"] = None
        return found

    def training_slack(self, staleness: int) -> int:
        """Iterations by which training may be behind the newest finished batch.

        The rest of the staleness is for what is in flight.
        """
        return 1 if self.trains_one_batch else max(staleness // 2, 1)

    def _never_drains(self, search: SearchSpec) -> bool:
        staleness = search.staleness
        return self.only and staleness > self.training_slack(staleness)
