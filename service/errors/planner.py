"""Why a planner process gave no answer."""


class PlannerProcessError(Exception):
    """The planner process did not answer; the server is sound, the job is lost."""


class PlannerCrashedError(PlannerProcessError):
    """The planner process failed or died over a job: our fault."""


class PlannerTimeoutError(PlannerProcessError):
    """The planner process was ended because it took far longer than the spec allows."""

    def __init__(self, limit_seconds: float) -> None:
        super().__init__(f"planning took more than {limit_seconds:g} s and was ended")
        self.limit_seconds = limit_seconds


class PlannerCancelledError(PlannerProcessError):
    """The job was taken away from the planner process."""
