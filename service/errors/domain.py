"""Why the service does not do what it was asked to: exceptions that hold data, and no HTTP.

Those of the planner are in `planner.errors`; why a planner process gave no answer stands last.
`schemas.problems` says how those that end a plan or a job are stored, `api.refusals` how a request
is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from automap.planner.errors import Reason
from automap.service.errors.fields import MAX_ERRORS, FieldError


class ServiceError(Exception):
    """An expected failure, with what is wrong field by field and why nothing fits, if known."""

    def __init__(
        self, detail: str, *, errors: Sequence[FieldError] = (), reasons: Sequence[Reason] = ()
    ) -> None:
        super().__init__(detail)
        self.errors = list(errors)
        self.reasons = list(reasons)


class NotFoundError(ServiceError):
    """Nothing has this name or id."""

    def __init__(self, what: str, key: object) -> None:
        super().__init__(f"There is no {what} {key}")


class ConflictError(ServiceError):
    """The request does not go with what is stored."""


class OlderVersionError(ServiceError):
    """A plan cannot be asked about: an earlier version stored it, and this one reads it no more."""

    def __init__(self, plan_id: object) -> None:
        super().__init__(
            f"Plan {plan_id} was stored by an earlier version: it is shown as it is, and nothing "
            "can be asked about it; plan its job again"
        )


class InvalidInputError(ServiceError):
    """Values of the request are wrong; `what` names what they are values of."""

    def __init__(self, errors: Sequence[FieldError], *, what: str = "") -> None:
        first, more = errors[0], len(errors) - 1
        others = f" (and {more} more)" if more else ""
        detail = f"{first.field}: {first.message}{others}"
        super().__init__(f"{what}: {detail}" if what else detail, errors=errors[:MAX_ERRORS])


class RequestInProgressError(ServiceError):
    """Another request with this idempotency key is being answered."""

    def __init__(self) -> None:
        super().__init__("A request with the same idempotency key is being answered")


class KeyReusedError(ServiceError):
    """The idempotency key stands for another request."""

    def __init__(self) -> None:
        super().__init__("The idempotency key was used for another request")


class BusyError(ServiceError):
    """The queue for a planner is full."""

    def __init__(self) -> None:
        super().__init__("As many requests as allowed wait for a planner")


class NotReadyError(ServiceError):
    """The service cannot answer requests now."""


class PlanLostError(ServiceError):
    """Planning ended its server, or its server died, as often as it is tried."""

    def __init__(self, attempts: int) -> None:
        super().__init__(
            f"The job was taken up {attempts} times and never finished; post it again to retry"
        )


class PlanFailedError(ServiceError):
    """The plan that a job waits for will never be; `cause` is its stored problem, if it has one."""

    def __init__(self, plan_id: object, status: str, cause: Mapping[str, Any] | None) -> None:
        known = cause or {}
        why = f": {known['detail']}" if known else ""
        super().__init__(
            f"Plan {plan_id} is {status}{why}",
            errors=[FieldError.model_validate(each) for each in known.get("errors", ())],
            reasons=[Reason.model_validate(each) for each in known.get("reasons", ())],
        )


class RunLostError(ServiceError):
    """A run was ended from outside as often as it is tried."""

    def __init__(self, attempts: int, reason: str) -> None:
        super().__init__(
            f"The run was started {attempts} times and never finished; the last time {reason}"
        )


class RunRefusedError(ServiceError):
    """The executor cannot run this plan with these settings."""


class RunFailedError(ServiceError):
    """The run ended with an error that trying again would not mend."""


class ProfileRefusedError(ServiceError):
    """The cluster cannot be measured as it was asked for."""


class ProfileFailedError(ServiceError):
    """Not every kind of node was measured; what was measured is stored."""


class PlannerProcessError(Exception):
    """The planner process did not answer; the server is sound, the job is lost."""


class PlannerCrashedError(PlannerProcessError):
    """The planner process failed or died over a job: our fault."""


class PlannerDiedError(PlannerCrashedError):
    """The planner process was killed or died as often as it is tried."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the planner process was ended from outside, and again: {how}")


class PlannerMemoryError(PlannerProcessError):
    """The planner process was ended because it took more memory than the service allows."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"planning took more than the {limit_bytes / 2**30:.3g} GiB of memory that this "
            "service allows and was ended"
        )


class PlannerTimeoutError(PlannerProcessError):
    """The planner process was ended because it took far longer than the spec allows."""

    def __init__(self, limit_seconds: float) -> None:
        super().__init__(f"planning took more than {limit_seconds:g} s and was ended")
        self.limit_seconds = limit_seconds


class PlannerCancelledError(PlannerProcessError):
    """The job was taken away from the planner process."""
