"""Why a service gave no answer that can be used."""

from automap.service.schemas.problems import Problem


class ClientError(Exception):
    """A request was not answered as it should be."""


class UnreachableError(ClientError):
    """Nothing listens at the address."""


class NoAnswerError(ClientError):
    """The connection was lost, or the answer took too long; what was asked may be done."""


class OtherVersionError(ClientError):
    """What came is no answer that this version knows."""


class ProblemError(ClientError):
    """The service says what is wrong: `problem` is its problem object (RFC 9457)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def kind(self) -> str:
        """The last part of the problem's type, such as `infeasible`."""
        return self.problem.type.rpartition("/")[2]
