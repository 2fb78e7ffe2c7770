"""The launches that are imported as a benchmark: how many without help, and all with it."""

import pytest

from benchmarks.imports import WANTED, imported
from benchmarks.launch_corpus import corpus


@pytest.mark.slow
def test_most_launches_need_no_help_and_the_others_what_they_name() -> None:
    launches = corpus()
    assert len({each.name for each in launches}) == len(launches) >= 40
    refused = {each.name: found for each in launches if isinstance(found := imported(each), list)}
    assert len(refused) <= (1 - WANTED) * len(launches), refused
    assert set(refused) == {each.name for each in launches if each.help}
    still = {
        each.name: found
        for each in launches
        if isinstance(found := imported(each, each.help), list)
    }
    assert still == {}
