"""AReaL's own loader, parser and checks on exports: hundreds accepted, broken ones refused."""

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from automap.planner import Launch
from automap.planner.exports.areal.settings import launch_of
from automap.planner.plan.types import Plan
from tests.exports.own_code import MISSING, own_code
from tests.helpers.areal_plans import (
    AREAL,
    SAMPLE,
    differences,
    environment,
    launch,
    plan_of,
    varied,
)
from tests.helpers.carried import carrying

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TYPES = {"int": "whole", "float": "number", "str": "text", "bool": "flag", "list": "list"}


def case(launch: Launch, folder: Path, **more: Any) -> dict[str, Any]:
    told = {"config": launch.files["areal.yaml"], **more}
    return told | {"environment": environment(launch, str(folder))}


def verdicts(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return own_code("accept_areal.py").verdicts(cases)


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """One of every form."""
    return {name: plan_of(laid) for name, laid in SAMPLE.items()}


def test_areal_would_run_what_a_plan_of_every_form_says(
    plans: dict[str, Plan], tmp_path: Path
) -> None:
    answers = verdicts({name: case(launch(p), tmp_path) for name, p in plans.items()})
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}
    arguments = answers["grpo"]["arguments"]
    assert (arguments["tensor_parallel_size"], arguments["max_model_len"]) == (2, 1536)
    assert "--gpu-memory-utilization" in answers["grpo"]["command"]
    arguments = answers["sglang"]["arguments"]
    assert (arguments["tp_size"], arguments["context_length"]) == (2, 1536)


def test_what_conversions_carry_is_taken(plans: dict[str, Plan], tmp_path: Path) -> None:
    cases = {name: case(launch_of(carrying(plan, AREAL)), tmp_path) for name, plan in plans.items()}
    answers = verdicts(cases)
    wrong = {name: differences(plan, answers[name]) for name, plan in plans.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


@pytest.mark.slow
def test_areal_would_run_what_hundreds_of_plans_say(plans: dict[str, Plan], tmp_path: Path) -> None:
    found = varied(plans)
    assert len(found) >= 200
    answers = verdicts({name: case(launch(p), tmp_path) for name, p in found.items()})
    wrong = {name: differences(plan, answers[name]) for name, plan in found.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


BROKEN = {
    "unknown": "+actor.mb_spec.max_tokens=3",
    "type": "actor.ppo_n_minibatches=two",
    "bare sizes": "actor.backend=d8",
    "engine": "actor.backend=deepspeed:d8",
    "pipeline of fsdp": "actor.backend=fsdp:d4p2",
    "context of an engine": "rollout.backend=vllm:d4c2",
    "several": "actor.backend='fsdp:d4+vllm:d4'",
    "sizes of experts": "actor.backend='megatron:(attn:d4t2|ffn:d3e4)'",
    "stages of experts": "actor.backend='megatron:(attn:d4p2|ffn:p4e2)'",
    "virtual stages": "actor.megatron.virtual_pipeline_parallel_size=2",
    "offload": "actor.offload=true",
    "together, by NCCL": "rollout.scheduling_strategy={type: colocation, target: actor}",
    "precision": "actor.dtype=int8",
    "kept precision": "actor.optimizer_dtype=float16",
    "level": "actor.reward_norm.mean_level=prompt",
    "passes": "total_train_epochs=0",
    "no name": "experiment_name='???'",
    "attention": "+actor.attn_impl=fast",
    "versions": "+actor._version=v2",
}
"""What is broken → an override that breaks it."""


@pytest.mark.slow
def test_areal_refuses_what_is_broken(tmp_path: Path) -> None:
    whole = launch(plan_of(SAMPLE["grpo"]))
    cases = {"whole": case(whole, tmp_path)}
    for name, override in BROKEN.items():
        cases[name] = case(whole, tmp_path, overrides=[override])
    found = verdicts(cases)
    assert "error" not in found.pop("whole"), found
    assert {name for name, each in found.items() if "error" not in each} == set()


@pytest.mark.slow
def test_every_key_is_described_with_its_type_and_default() -> None:
    theirs = verdicts({"all": {"described": True}})["all"]
    ours = {key: each for each in AREAL.settings for key in each.keys.values()}
    assert set(ours) - set(theirs) == set()
    unpriced = [*AREAL.unpriced, *AREAL.saves_memory]
    others = [*AREAL.other_keys, *unpriced, *AREAL.without_effect]
    left = {
        key
        for key in theirs
        if key not in ours and not any(fnmatch.fnmatchcase(key, each) for each in others)
    }
    assert left == set()
    for key, each in ours.items():
        told = theirs[key]
        if each.type != "workers":
            kind = each.type.replace("word", "text")
            assert kind == TYPES[told["type"]], key
        value = told["default"]
        if value == "???" or each.type == "workers":
            # It has to be given: AReaL ends without it, or its default takes no GPU.
            assert each.default == "" or each.decision == "folder", key
            continue
        shown = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
        assert each.default == (shown or "empty"), key
