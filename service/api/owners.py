"""Plans and jobs that are given to somebody else: by whom, and that it is written down."""

from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from automap.service.api.dependencies import ServiceDep
from automap.service.api.refusals import MissingScopeError
from automap.service.schemas.descriptions import DescriptionPatch
from automap.service.use_cases.service_parts import Caller

Patch = TypeVar("Patch", bound=DescriptionPatch)


@dataclass(frozen=True, slots=True)
class Owners:
    """Whether the caller of a request may give things away, and what the audit log says of it."""

    request: Request
    caller: Caller

    def may_give(self, patch: Patch) -> Patch:
        """The patch, if the caller may do what it says.

        Raises:
            MissingScopeError: it changes the owner, and the key may not.
        """
        if patch.owner is not None and "admin" not in self.caller.scopes:
            raise MissingScopeError("admin", self.caller.scopes)
        return patch

    def note(self, change: str) -> None:
        """Have the audit log say what was changed, if it is to know."""
        if change:
            self.request.state.change = change


async def _owners(request: Request, service: ServiceDep) -> Owners:
    return Owners(request, service.caller)


OwnersDep = Annotated[Owners, Depends(_owners)]
