"""Which tests one process runs, where `make test` runs them on several."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# A machine that others use as well may be slow at anything: that is no fault of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


# xdist's own --dist loadgroup does not see groups with this version of pytest.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Keep a file's tests together, which share fixtures, and those that fill the machine."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _chain(config.rootpath, file) or file

    return Scheduling(config, log)


@cache  # xdist asks for every test
def _chain(root: Path, file: str) -> str:
    """Which files that start many processes run one after the other; empty: it starts few.

    Two such files fit on two processors: one that runs models, and one that starts services.
    """
    if "pytest.mark.many_processes" not in (root / file).read_text(encoding="utf-8"):
        return ""
    models = file.startswith(("tests/executor/", "tests/profiler/"))
    return "models" if models else "services"
