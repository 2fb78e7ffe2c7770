"""OpenRLHF's own parser and placement checks on exports: hundreds accepted, broken ones refused."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from automap.planner.exports.openrlhf.settings import launch_of
from automap.planner.plan.types import Plan
from tests.exports.own_code import MISSING, own_code
from tests.helpers.carried import carrying
from tests.helpers.openrlhf_plans import (
    OPENRLHF,
    SAMPLE,
    differences,
    launch,
    plan_of,
    varied,
    words_of,
)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TYPES = {"int": "whole", "float": "number", "str": "text", "flag": "flag"}


def verdicts(launches: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    return own_code("accept_openrlhf.py").verdicts(
        {name: {"words": list(words)} for name, words in launches.items()}
    )


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """One of every form."""
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


def test_openrlhf_would_run_what_a_plan_of_every_form_says(plans: dict[str, Plan]) -> None:
    answers = verdicts({name: words_of(launch(p)) for name, p in plans.items()})
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}
    # It warns of what it sets otherwise than it is told.
    assert {line for each in answers.values() for line in each["warned"]} <= {
        "[Warning] Using --colocate_all_models in async RLHF only colocates DeepSpeed models."
    }


def test_what_conversions_carry_is_taken(plans: dict[str, Plan]) -> None:
    cases = {name: words_of(launch_of(carrying(plan, OPENRLHF))) for name, plan in plans.items()}
    answers = verdicts(cases)
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


@pytest.mark.slow
def test_openrlhf_would_run_what_hundreds_of_plans_say(plans: dict[str, Plan]) -> None:
    found = varied(plans)
    assert len(found) >= 200
    answers = verdicts({name: words_of(launch(p)) for name, p in found.items()})
    wrong = {name: differences(plan, answers[name]) for name, plan in found.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


def test_openrlhf_refuses_what_is_broken(plans: dict[str, Plan]) -> None:
    words = words_of(launch(plans["ppo, a reward model, together"]))
    two = words_of(launch(plans["ppo in two groups"]))

    def but(key: str, value: str, of: Sequence[str] = tuple(words)) -> list[str]:
        place = of.index(key) + 1
        return [*of[:place], value, *of[place + 1 :]]

    broken = {
        "unknown": [*words, "--rollout.batchsize", "3"],
        "type": but("--ds.zero_stage", "two"),
        "choice": but("--algo.advantage.estimator", "ppo"),
        "earlier": [*words, "--colocate_all_models"],
        "reference": but("--ref.num_gpus_per_node", "4"),
        "engines": but("--vllm.num_engines", "3"),
        "pair": but("--reward.num_gpus_per_node", "4", two),
        "samples": but("--rollout.micro_batch_size", "1024"),
        "responses": but("--algo.advantage.estimator", "rloo"),
        "no engines": but("--vllm.num_engines", "0"),
        "asynchronous": [*words, "--train.async_enable"],
        "generated": [*words, "--rollout.vllm_generate_batch_size", "100000"],
    }
    found = verdicts({"whole": words, **broken})
    assert "error" not in found.pop("whole")
    assert {name for name, each in found.items() if "error" not in each} == set()


def test_every_argument_is_described_with_its_type_and_default() -> None:
    theirs = own_code("accept_openrlhf.py").verdicts({"all": {"described": True}})["all"]
    theirs.pop("--help")
    ours = {
        key: (each.type, each.default, each.engine)
        for each in OPENRLHF.settings
        for key in each.keys.values()
    }
    others = {key: (e["type"], e["default"], None) for key, e in OPENRLHF.others.items()}
    assert set(theirs) == set(ours) | set(others)
    assert not set(ours) & set(others)
    for key, (kind, default, _) in (ours | others).items():
        told = theirs[key]
        plural = "s" if told["several"] else ""
        assert kind.replace("word", "text") == TYPES[told["type"]] + plural, key
        value = told["default"]
        shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        if key == "--logger.wandb.run_name" or (value is None and " " in default):
            continue
        assert default == (shown or "empty"), key
