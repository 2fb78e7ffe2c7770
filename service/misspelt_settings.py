"""Variables that are named as settings and are none: misspelt ones would be ignored in silence."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from automap.service.settings import SECRETS_FOLDER, Settings

_PREFIX = "AUTOMAP_"
_OTHERS = frozenset(
    {
        SECRETS_FOLDER,
        *("AUTOMAP_API_KEY", "AUTOMAP_LOCK_FOLDER", "AUTOMAP_RUN_FOLDERS"),
        *("AUTOMAP_CHAOS_JOURNAL", "AUTOMAP_CHROMIUM", "AUTOMAP_TEST_RUN"),
    }
)
"""Variables of clients, of jobs, and of our tests."""
_KUBERNETES_HOST = "_SERVICE_HOST"


def misspelt_settings(names: Iterable[str], passed_on: Iterable[str] = ()) -> Iterator[str]:
    """What to say of each of these variables that nobody reads, with the setting it may be.

    `passed_on`: names of variables that are for others.
    """
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields}
    given = sorted(names)
    # Kubernetes tells pods of a Service automap-… by variables that begin so.
    services = [
        name.removesuffix(_KUBERNETES_HOST) for name in given if name.endswith(_KUBERNETES_HOST)
    ]
    foreign = tuple(f"{each}_{kind}" for each in services for kind in ("SERVICE_", "PORT"))
    for name in given:
        written = name.upper()
        if not written.startswith(_PREFIX) or name.startswith(foreign):
            continue
        if written in known | _OTHERS or name in passed_on:
            continue
        close = get_close_matches(written, sorted(known | _OTHERS), n=1, cutoff=0.8)
        meant = f": did you mean {close[0]}?" if close else ""
        yield f"the variable {name} is no setting and is ignored{meant}"
