"""What may run at the same time, where `make test` runs the tests on several processes."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests together, which share fixtures, and those that fill the machine."""
    for item in items:
        alone = item.get_closest_marker("many_processes")
        group = "many_processes" if alone else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
