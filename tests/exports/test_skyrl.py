"""SkyRL's own configuration, checks and placement on exports: hundreds accepted, broken refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from automap.planner.exports.skyrl.settings import launch_of
from automap.planner.exports.skyrl.values import quoted
from automap.planner.plan.types import Plan
from tests.exports.own_code import MISSING, own_code
from tests.helpers.carried import carrying
from tests.helpers.skyrl_plans import (
    SAMPLE,
    SKYRL,
    case_of,
    differences,
    launch,
    plan_of,
    varied,
)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TYPES = {
    "int": "whole",
    "float": "number",
    "bool": "flag",
    "str": "text",
    "dict": "dict",
    "Union[bool, int]": "flag",
}
HOME = ("trainer.ckpt_path", "trainer.export_path", "data.train_data", "data.val_data")
"""Keys whose default is in the home of who asks."""
COPIED = (
    "trainer.ref.model.path",
    "generator.max_input_length",
    "trainer.algorithm.temperature",
    "data.dataloader.num_workers",
)
"""Keys that are another key's value, or a number, once the configuration is built."""


def verdicts(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return own_code("accept_skyrl.py").verdicts(cases)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """One of every form."""
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


def wrong(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Where what SkyRL would run is not what a plan says, by the plan's name."""
    answers = verdicts({name: case_of(name, launch(plan)) for name, plan in plans.items()})
    found = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    return {name: told for name, told in found.items() if told}


def test_skyrl_would_run_what_a_plan_of_every_form_says(plans: dict[str, Plan]) -> None:
    assert wrong(plans) == {}


def test_what_conversions_carry_is_taken(plans: dict[str, Plan]) -> None:
    cases = {name: case_of(name, launch_of(carrying(plan, SKYRL))) for name, plan in plans.items()}
    answers = verdicts(cases)
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


@pytest.mark.slow
def test_skyrl_would_run_what_hundreds_of_plans_say(plans: dict[str, Plan]) -> None:
    found = varied(plans)
    assert len(found) >= 200
    assert wrong(found) == {}


@pytest.mark.slow
def test_skyrl_refuses_what_is_broken(plans: dict[str, Plan]) -> None:
    def but(of: str, **changes: str) -> dict[str, Any]:
        case = case_of(of, launch(plans[of]))
        keys = {key.replace("__", "."): value for key, value in changes.items()}
        kept = [each for each in case["overrides"] if each.split("=")[0] not in keys]
        return case | {"overrides": [*kept, *(f"{key}={value}" for key, value in keys.items())]}

    placement, engine = "trainer__placement__", "generator__inference_engine__"
    async_ = "trainer__fully_async__"
    broken = {
        "unknown": but("ppo", trainer__trainbatch="3"),
        "added": but("ppo", **{"+trainer__seed": "3"}),
        "earlier": but("ppo", generator__num_inference_engines="8"),
        "estimator": but("grpo", trainer__algorithm__advantage_estimator="ppo"),
        "strategy": but("grpo", trainer__strategy="zero3"),
        "engines": but("grpo", **{f"{engine}num_engines": "3"}),
        "experts": but("mixture", **{f"{engine}expert_parallel_size": "4"}),
        "critic": but("ppo", **{f"{placement}critic_num_gpus_per_node": "4"}),
        "reference": but("ppo", **{f"{placement}ref_num_gpus_per_node": "4"}),
        "pair": but("ppo, stale", **{f"{placement}ref_num_gpus_per_node": "4"}),
        "no critic": but("ppo", trainer__critic__model__path="null"),
        "megatron critic": but("ppo", trainer__strategy="megatron"),
        "both": but("ppo", trainer__algorithm__use_kl_loss="true"),
        "updates": but("grpo", trainer__policy_mini_batch_size="100"),
        "micro": but("grpo", trainer__micro_train_batch_size_per_gpu="3"),
        "sizes": but(
            "grpo, megatron", trainer__policy__megatron_config__tensor_model_parallel_size="3"
        ),
        "input": but("grpo", generator__max_input_length="1"),
        "stale, together": but("ppo, stale", **{f"{placement}colocate_all": "true"}),
        "stale, updates": but("ppo, stale", trainer__policy_mini_batch_size="128"),
        "stale, loss": but("ppo, stale", trainer__algorithm__policy_loss_type="regular"),
        "stale, sampling": but("dapo, stale", trainer__algorithm__dynamic_sampling__type="filter"),
        "stale, groups": but("ppo, stale", **{f"{async_}num_parallel_generation_workers": "9999"}),
        "stale, off": but("ppo, stale", **{f"{async_}enabled": "false"}),
    }
    whole = {name: but(name) for name in ("grpo", "ppo", "ppo, stale")}
    found = verdicts({**whole, **broken})
    assert not any("error" in found.pop(name) for name in whole)
    wrongly = {name for name, each in found.items() if "error" not in each}
    # Which engine there is shows where its workers are imported.
    assert wrongly == {"strategy"}


@pytest.mark.slow
def test_every_key_is_described_with_its_type_and_default() -> None:
    theirs = verdicts({"all": {"described": True}})["all"]
    ours = {
        key: (each.type, each.values.get(role, each.default))
        for each in SKYRL.settings
        for role, key in each.keys.items()
        if "_kwargs." not in key
    }
    others = {key: (each["type"], each["default"]) for key, each in SKYRL.others.items()}
    assert set(ours) | set(others) == set(theirs)
    assert not set(ours) & set(others)
    for key, (kind, default) in (ours | others).items():
        told, value = theirs[key]
        name = told.replace("typing.", "").removeprefix("<class '").removesuffix("'>")
        name = name.removeprefix("Optional[").removesuffix("]") if "Optional" in name else name
        name = "dict" if name.startswith(("Dict", "skyrl")) else name
        wanted = "list" if name.startswith("List") else TYPES[name]
        assert kind.replace("word", "text") == wanted, key
        if key not in (*HOME, *COPIED) and default:
            assert default == ("null" if value is None else str(value)), key


@pytest.mark.slow
def test_any_name_comes_through_as_it_is() -> None:
    names = ["it's", "a ${b} c", "\\${x}", "# no", "[a, b]", "{a: b}", "null", "1e-3", "ü'\\"]
    base = case_of("grpo", launch(plan_of(SAMPLE["grpo"])))
    kept = [each for each in base["overrides"] if "run_name" not in each]
    found = verdicts(
        {n: base | {"overrides": [*kept, f"trainer.run_name={quoted(n)}"]} for n in names}
    )
    read = {n: found[n].get("values", {}).get("trainer.run_name", found[n]) for n in names}
    assert read == {name: name for name in names}
