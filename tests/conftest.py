"""Which tests one process runs, where `make test` runs them on several."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling


# xdist's own --dist loadgroup does not see groups with this version of pytest.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadScopeScheduling":
    """Keep a file's tests together, which share fixtures, and those that fill the machine."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            text = Path(config.rootpath, file).read_text(encoding="utf-8")
            return "many processes" if "pytest.mark.many_processes" in text else file

    return Scheduling(config, log)
