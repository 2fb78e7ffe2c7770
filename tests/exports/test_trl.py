"""TRL's, accelerate's and vLLM's own code on exports: hundreds accepted, broken ones refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from automap.planner.exports.trl.settings import launch_of
from automap.planner.plan.types import Plan
from tests.exports.own_code import MISSING, own_code
from tests.helpers.carried import carrying
from tests.helpers.trl_plans import (
    SAMPLE,
    TRL,
    case_of,
    differences,
    launch,
    plan_of,
    varied,
)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TYPES = {"int": "whole", "float": "number", "string_to_bool": "switch"}


def verdicts(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return own_code("accept_trl.py").verdicts(cases)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """One of every form."""
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


def wrong(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Where what TRL would run is not what a plan says, by the plan's name."""
    answers = verdicts({name: case_of(plan, launch(plan)) for name, plan in plans.items()})
    found = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    return {name: told for name, told in found.items() if told}


def test_trl_would_run_what_a_plan_of_every_form_says(plans: dict[str, Plan]) -> None:
    assert wrong(plans) == {}


def test_what_conversions_carry_is_taken(plans: dict[str, Plan]) -> None:
    cases = {name: case_of(plan, launch_of(carrying(plan, TRL))) for name, plan in plans.items()}
    answers = verdicts(cases)
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


@pytest.mark.slow
def test_trl_would_run_what_hundreds_of_plans_say(plans: dict[str, Plan]) -> None:
    found = varied(plans)
    assert len(found) >= 200
    assert wrong(found) == {}


@pytest.mark.slow
def test_they_refuse_what_is_broken(plans: dict[str, Plan]) -> None:
    case = case_of(plans["grpo"], launch(plans["grpo"]))
    apart = case_of(plans["server on a node"], launch(plans["server on a node"]))

    def but(where: str, old: str, new: str) -> dict[str, Any]:
        assert old in case[where]
        return {**case, where: case[where].replace(old, new)}

    broken = {
        "no key of accelerate": but("accelerate", "num_machines:", "num_nodes:"),
        "no key of a section": but("accelerate", "  zero_stage:", "  stage:"),
        "sharding": but("accelerate", "DEEPSPEED", "ZERO"),
        "processes": but("accelerate", "num_processes: 8", "num_processes: -1"),
        "no key of the trainer": but("trainer", "num_generations:", "num_completions:"),
        "type": but("trainer", "num_iterations: 1", "num_iterations: once"),
        "both": but("trainer", "num_iterations:", "steps_per_generation: 4\nnum_iterations:"),
        "groups": but("trainer", "num_generations: 4", "num_generations: 3"),
        "one response": but("trainer", "num_generations: 4", "num_generations: 1"),
        "batch": but("trainer", "generation_batch_size: 1024", "generation_batch_size: 1000"),
        "tensor size": but("trainer", "parallel_size: 2", "parallel_size: 3"),
        "mode": but("trainer", "vllm_mode: colocate", "vllm_mode: together"),
        "server": {**apart, "serve": [*apart["serve"], "--kv-cache-bytes", "3"]},
    }
    found = verdicts({"whole": case, "apart": apart, **broken})
    assert "error" not in found.pop("whole")
    assert "error" not in found.pop("apart")
    assert {name for name, each in found.items() if "error" not in each} == set()


@pytest.mark.slow
def test_every_argument_is_described_with_its_type_and_default() -> None:
    theirs = verdicts({"all": {"described": True}})["all"]
    described = {
        key: (each.type, each.default)
        for each in TRL.settings
        for key in each.keys.values()
        if key.startswith("--")
    }
    others = {k: (e["type"], e["default"]) for k, e in TRL.others.items() if k.startswith("--")}
    assert not set(described) & set(others)
    ours = described | others
    trainer = {**theirs["rloo"], **theirs["grpo"]}
    trainer.pop("help")
    assert {f"--{name}" for name in trainer} == set(ours)
    for name, told in trainer.items():
        kind, default = ours[f"--{name}"]
        if (wanted := TYPES.get(told["type"])) and not told["several"]:
            assert kind == wanted, name
        value = told["default"]
        if isinstance(value, bool | int | float):
            shown = str(value)
            assert default in (shown, f"{value:g}", str(float(value))), name
    accelerate = set(theirs["accelerate"])
    for key in (k for s in TRL.settings for k in s.keys.values() if k.startswith("accelerate.")):
        name = key.rpartition(".")[2]
        assert name in accelerate | {"distributed_type"}, key
