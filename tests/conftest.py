"""Which tests one process runs, where `make test` runs them on several."""

from functools import cache
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
            return "many processes" if _fills_the_machine(config.rootpath / file) else file

    return Scheduling(config, log)


@cache  # xdist asks for every test
def _fills_the_machine(file: Path) -> bool:
    return "pytest.mark.many_processes" in file.read_text(encoding="utf-8")
