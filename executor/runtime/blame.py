"""Who is to blame when a run ends: messages with role, call, ranks and cause."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    WorkerCrashedError,
)

from automap.executor.errors import CallError, CallFailedError, CallTimeoutError, WorkerDiedError
from automap.executor.workers.process import Reply

_DEATHS = (
    RayActorError,
    NodeDiedError,
    OutOfMemoryError,
    WorkerCrashedError,
    LocalRayletDiedError,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal codes, which Ray puts into its messages."""
_LOST_PEER = ("Connection closed", "Connection reset", "NCCL", "gloo", "Broken pipe")
"""In messages of errors that another rank's end causes."""


@dataclass(frozen=True, slots=True)
class CallName:
    """A call as records and errors show it."""

    id: str
    """The call's id in the plan (actor.generate); else its role and method."""
    role: str
    method: str
    num_ranks: int = 1
    detail: str = ""
    """What else is called, for example the reward function."""

    def __str__(self) -> str:
        return f"{self.role}.{self.method}" + (f" ({self.detail})" if self.detail else "")

    def ranks(self, ranks: Sequence[int]) -> str:
        """`rank 1 of 4` in words."""
        if self.num_ranks == 1:
            return "its only rank"
        listed = ", ".join(str(rank) for rank in ranks)
        return f"rank{'s' if len(ranks) > 1 else ''} {listed} of {self.num_ranks}"

    def timed_out(
        self, missing: Sequence[int], seconds: float, stacks: Mapping[int, str | None]
    ) -> CallTimeoutError:
        """The call has not come back from these ranks."""
        lines = [f"{self} did not come back from {self.ranks(missing)} within {seconds:g} s"]
        lines += [f"rank {rank}: {_place(stacks.get(rank))}" for rank in missing]
        return CallTimeoutError(
            "\n  ".join(lines), role=self.role, method=self.method, ranks=missing
        )


@dataclass(frozen=True, slots=True)
class Blame:
    """One thing that went wrong, of several that one cause may bring about."""

    name: CallName
    error: CallError
    rank_of_cause: int
    """0: a process ended; 1: a method raised; 2: a method lost its connection to another rank."""
    at: float
    """Unix time of the error in seconds."""

    @classmethod
    def of_controller(cls, name: CallName, error: Exception) -> "Blame":
        """Arguments could not be distributed, or outputs not collected."""
        message = f"{name}: {error}"
        failed = CallFailedError(message, role=name.role, method=name.method, ranks=())
        failed.__cause__ = error
        return cls(name, failed, 1, 0.0)

    @classmethod
    def of_rank(cls, name: CallName, rank: int, reply: Reply) -> "Blame":
        """A method raised."""
        failure = reply.failure
        assert failure is not None
        message = (
            f"{name} failed on {name.ranks([rank])}: {failure.cause}: {failure.message}\n\n"
            f"{failure.traceback}"
        )
        error = CallFailedError(message, role=name.role, method=name.method, ranks=[rank])
        lost = any(text in failure.message for text in _LOST_PEER)
        return cls(name, error, 2 if lost else 1, reply.started_at + reply.seconds)

    @classmethod
    def of_process(cls, name: CallName, rank: int, error: BaseException) -> "Blame":
        """Ray has no reply: mostly because the process ended."""
        reported = _COLOURS.sub("", str(error))
        if not isinstance(error, _DEATHS):
            message = f"{name} gave no reply on {name.ranks([rank])}: {reported}"
            failed = CallFailedError(message, role=name.role, method=name.method, ranks=[rank])
            return cls(name, failed, 1, 0.0)
        message = f"the process of {name.ranks([rank])} ended during {name}: {reported}"
        died = WorkerDiedError(message, role=name.role, method=name.method, ranks=[rank])
        return cls(name, died, 0, 0.0)


def root_cause(blames: Sequence[Blame]) -> CallError:
    """The error that explains the others; these are listed in a note."""
    first, *others = sorted(blames, key=lambda blame: (blame.rank_of_cause, blame.at))
    same_kind = [
        blame
        for blame in others
        if blame.rank_of_cause == 0 == first.rank_of_cause and blame.name is first.name
    ]
    if same_kind:
        ranks = sorted({rank for blame in (first, *same_kind) for rank in blame.error.ranks})
        first.error.ranks = tuple(ranks)
    for blame in others:
        first.error.add_note(f"Also: {str(blame.error).splitlines()[0]}")
    return first.error


def _place(stack: str | None) -> str:
    """The innermost line of a stack, and whether it waits for other ranks."""
    if stack is None:
        return "does not answer at all (stopped, or stuck outside Python)"
    lines = [line.strip() for line in stack.splitlines() if line.lstrip().startswith("File ")]
    if not lines:
        return "is between calls"
    waits = any(str(Path("torch", "distributed")) in line for line in lines)
    innermost = lines[-1]
    return f"{'waits for other ranks' if waits else 'is busy'} in {innermost}"
