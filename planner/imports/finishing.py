"""The last steps of every reader: reasons are told first, then the launch is an `Imported`."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from automap.planner.errors import NotImportableError, SpecError
from automap.planner.imports.cache import most_sequences
from automap.planner.imports.keys import classify, meant, misspelt, values_of
from automap.planner.imports.launch import Imported, Whereabouts
from automap.planner.imports.resolving import assume_hardware
from automap.planner.imports.settings import Settings
from automap.planner.job.job import Job
from automap.planner.plan.types import Placement


@contextmanager
def reasons_first(settings: Settings) -> Iterator[None]:
    """Make a job and a placement inside; what was found wrong on the way goes before what fails.

    Raises:
        NotImportableError: something was found wrong; has every reason.
    """
    try:
        yield
    except (ValidationError, SpecError):
        if settings.reasons:
            raise _refusal(settings) from None
        raise
    if settings.reasons:
        raise _refusal(settings)


def _refusal(settings: Settings) -> NotImportableError:
    """Every reason, first the keys whose spelling may be why others are missing."""
    reasons = [*misspelt(settings), *settings.reasons]
    return NotImportableError(settings.framework.target, reasons, meant(settings))


def imported(
    settings: Settings,
    job: Job,
    placed: tuple[Placement, int],
    *,
    entry: str = "",
    own: tuple[str, ...] = (),
) -> Imported:
    """The launch as a job and a placement.

    Args:
        settings: Of the launch, all looked up.
        job: That it is.
        placed: Its placement, and the bytes of an engine's cache.
        entry: The program of the framework that it starts; empty: the one that exports start.
        own: Keys, as patterns, that are the program's own.
    """
    overrides = settings.overrides
    assume_hardware(settings, job)
    for role, model in job.models.items():
        if model.architecture.approximation:
            settings.note("not priced", f"model of the {role}: {model.architecture.approximation}")
    places = {
        key: (given.file, *given.place)
        for key, given in overrides.given.items()
        if given.place is not None
    }
    placement, cache = placed
    most = most_sequences(settings, placement)
    return Imported(
        target=settings.framework.target,
        entry=entry,
        file=overrides.file,
        line=overrides.line,
        spec=job.spec,
        placement=placement,
        cache_bytes=cache,
        settings=classify(settings, own),
        remarks=[*overrides.remarks, *settings.remarks],
        misspelt=meant(settings, own),
        engine=settings.engine,
        most_sequences=most,
        values=values_of(settings),
        whereabouts=Whereabouts(overrides.end, places),
    )
