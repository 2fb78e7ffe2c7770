"""What the description says verl does where a key is left out, against verl's own configuration."""

import fnmatch
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from automap.planner.frameworks import framework
from automap.planner.imports.settings import Settings
from automap.planner.imports.verl.overrides import Overrides
from tests.exports.own_code import MISSING, PYTHON

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
VERL = framework("verl@0.9.1")
ENGINES = {"fsdp": "dp", "megatron": "megatron"}
NOT_SAID = ("engine", "generation_engine", "recompute_modules", "logger")
"""Decisions that verl leaves open, has a list for, or that are asked of it here."""


@pytest.fixture(scope="module")
def configurations() -> dict[str, dict[str, Any]]:
    """verl's configuration by kind of engine, flat, with references resolved."""
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("verl_defaults.py")), *ENGINES.values()],
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, "HOME": os.environ.get("HOME", "/")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    return {engine: found[name] for engine, name in ENGINES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_left_out_is_what_verl_does(
    configurations: dict[str, dict[str, Any]], engine: str
) -> None:
    settings = Settings(VERL, Overrides("", 0), {}, engine=engine)
    wrong = {}
    for setting in VERL.settings:
        if setting.engine not in (None, engine):
            continue
        for role, key in setting.keys.items():
            if key.startswith("+") or setting.decision in NOT_SAID:
                continue
            verls = configurations[engine][key]
            ours = settings.value(setting.decision, role)
            ours = str(ours) if isinstance(ours, list) else ours  # as their flat form has lists
            if verls != ours and (verls, ours) not in ((None, False),):
                wrong[f"{key} ({setting.decision})"] = (verls, ours)
    assert wrong == {}


def test_every_key_of_verl_is_described_one_way_or_another(
    configurations: dict[str, dict[str, Any]],
) -> None:
    keys = {key.lstrip("+") for setting in VERL.settings for key in setting.keys.values()}
    keys |= {*VERL.without_effect, *VERL.renamed, *VERL.replaced}
    patterns = [*VERL.unpriced, *VERL.unpriced_off, *VERL.saves_memory, *VERL.other_keys]
    sections = tuple(key for key in (*VERL.renamed, *VERL.replaced) if key.endswith("."))
    unknown = [
        key
        for key in configurations["fsdp"] | configurations["megatron"]
        if key not in keys
        and not key.startswith(sections)
        and not any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
    ]
    assert unknown == []


def test_keys_of_nobody_are_unknown(configurations: dict[str, dict[str, Any]]) -> None:
    """No pattern is so wide that a mistyped key of a section passes for one of verl's."""
    sections = {key.rpartition(".")[0] for key in configurations["fsdp"]}
    checked = [each for each in sections if each.count(".") < 2]
    patterns = [*VERL.unpriced, *VERL.unpriced_off, *VERL.saves_memory, *VERL.other_keys]
    wide = {"global_profiler", "transfer_queue", "ray_kwargs", "distillation"}
    passing = [
        section
        for section in checked
        if any(fnmatch.fnmatchcase(f"{section}.nonsense", pattern) for pattern in patterns)
        and section.partition(".")[0] not in wide
        and "profiler" not in section
    ]
    assert passing == []
