"""Descriptions of frameworks: what they hold, and how one is named."""

import pytest

from automap.planner.errors import SpecError
from automap.planner.frameworks import ENGINES, framework, framework_names


@pytest.mark.parametrize("name", framework_names())
def test_a_description_is_unambiguous(name: str) -> None:
    described = framework(name)
    assert described.target == name
    for setting in described.settings:
        assert setting.engine in (None, *ENGINES)
        for role in setting.keys:
            found = described.setting(setting.decision, role=role, engine=setting.engine)
            assert found.keys[role] == setting.keys[role]
    limits = [limit.name for limit in described.limits]
    assert len(set(limits)) == len(limits)
    assert len({limit.what for limit in described.limits}) == len(limits)
    with pytest.raises(KeyError, match="no limit nonsense"):
        described.limit("nonsense")
    with pytest.raises(KeyError, match="0 settings of nonsense"):
        described.setting("nonsense")


def test_unknown_targets_are_refused_with_those_known() -> None:
    for given in ("verl@0.9", "verll", "", "../verl@0.9.1", "x" * 10_000):
        with pytest.raises(SpecError, match="unknown target") as caught:
            framework(given)
        assert "verl@0.9.1" in caught.value.remedy
        assert len(caught.value.message) < 120
    assert framework("verl") is framework("verl@0.9.1")
