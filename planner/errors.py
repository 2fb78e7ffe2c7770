"""The planner's expected failures, as data: what is wrong, in numbers, and the remedy."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict


class Reason(BaseModel):
    """Why a job cannot be placed, or what would make it possible; one line of an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    summary: str
    phase: str | None = None
    """The call whose memory does not fit, as `role.kind`, for example `actor.train`."""
    required_bytes: int | None = None
    capacity_bytes: int | None = None
    over_bytes: int | None = None
    remedy: str | None = None
    """The smallest change of this kind that makes the job possible."""


class FieldValueError(ValueError):
    """An error of a validator about one field, with the remedy.

    `field` is the path below what is validated (empty: just that), `remedy` what would be valid.
    """

    def __init__(self, field: str, message: str, *, remedy: str) -> None:
        super().__init__(f"{field}: {message} ({remedy})".removeprefix(": "))
        self.field = field
        self.message = message
        self.remedy = remedy


class PlanningError(Exception):
    """An expected outcome of planning that is not a plan."""


class SpecError(PlanningError):
    """The caller's data is wrong in a way only the catalogue or the whole spec can tell.

    `field` is the path in the spec (`models.actor.architecture`), `remedy` what would be valid.
    """

    def __init__(self, field: str, message: str, *, remedy: str = "") -> None:
        super().__init__(f"{field}: {message}" + (f" ({remedy})" if remedy else ""))
        self.field = field
        self.message = message
        self.remedy = remedy


class PlanCheckError(SpecError):
    """A plan is not what its job is priced as here: of another version, or edited.

    `cause` says which of these, `found` what the check found.
    """

    def __init__(self, others: Sequence[str], found: Sequence[str]) -> None:
        self.cause = "made by another version" if others else "edited, or made with another profile"
        self.found = list(found)
        named = f" ({', '.join(others)})" if others else ""
        listed = "; ".join(found)
        message = f"the plan was {self.cause}{named}, so it fails the check: {listed}"
        super().__init__("plan", message, remedy="plan the job again")


class InfeasibleError(PlanningError):
    """No placement satisfies the memory and the constraints; `reasons` say why and what would."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("; ".join(reason.summary for reason in reasons) or "no feasible plan")
        self.reasons = list(reasons)


class NotExportableError(PlanningError):
    """A framework cannot be told a plan; every reason says what it could do instead."""

    def __init__(self, target: str, reasons: Sequence[Reason]) -> None:
        super().__init__(
            f"{target} cannot run this plan: " + "; ".join(reason.summary for reason in reasons)
        )
        self.target = target
        self.reasons = list(reasons)


class NotImportableError(PlanningError):
    """A launch is not read as a plan; every reason says what is missing, and what would give it."""

    def __init__(
        self,
        target: str,
        reasons: Sequence[Reason],
        misspelt: Mapping[str, str] | None = None,
    ) -> None:
        """`misspelt`: key that the framework lacks → the one that is meant."""
        super().__init__(
            f"a launch of {target} is not read: " + "; ".join(reason.summary for reason in reasons)
        )
        self.target = target
        self.reasons = list(reasons)
        self.misspelt = dict(misspelt or {})


class NoSolutionInTimeError(PlanningError):
    """The search ended by its limit before it found any plan; it had proven the bound."""

    def __init__(self, lower_bound_seconds: float, *, pricing: bool = False) -> None:
        """With `pricing` the limit ended before all candidates were priced."""
        known = f"proven lower bound {lower_bound_seconds:.3f} s"
        if pricing:
            known = "it ended while candidates were priced"
        elif lower_bound_seconds <= 0:
            known = "nothing is proven of its seconds"
        super().__init__(
            f"the search found no plan within its time limit ({known}); "
            "raise search.time_limit_seconds"
        )
        self.lower_bound_seconds = lower_bound_seconds
