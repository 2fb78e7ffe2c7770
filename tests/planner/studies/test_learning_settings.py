"""What launches say of learning, by the keys of every framework."""

import fnmatch

import pytest

from automap.planner.frameworks.description import framework, framework_names
from automap.planner.studies.learning_settings import ALIKE, BOTH_CLIPS, DECAYS, LEAST


def keys_of(name: str) -> set[str]:
    tables = (*ALIKE.values(), *LEAST.values(), BOTH_CLIPS)
    found = {key for keys in tables for who, key in keys.items() if who.split()[0] == name}
    return found | {schedule for rate, schedule in DECAYS.items() if rate in found}


@pytest.mark.parametrize("target", framework_names())
def test_every_key_is_one_that_the_framework_has(target: str) -> None:
    described = framework(target)
    decided = {key.lstrip("+") for each in described.settings for key in each.keys.values()}
    for key in keys_of(described.name):
        patterns = (fnmatch.fnmatchcase(key, each) for each in described.other_keys)
        assert key in decided or key in described.others or any(patterns), key


def test_every_framework_is_named() -> None:
    names = {each.partition("@")[0] for each in framework_names()}
    assert {who.split()[0] for keys in ALIKE.values() for who in keys} == names
