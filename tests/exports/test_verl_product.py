"""The product of algorithms, models, clusters, placements and engines: verl takes every export."""

import itertools
from pathlib import Path

import pytest

from automap.planner.errors import InfeasibleError
from automap.planner.exports.refusals import refusals
from automap.planner.plan.types import Plan
from tests.exports.asked import ask, differences, subject
from tests.exports.own_code import MISSING
from tests.helpers.broken_exports import accepted_by_verl
from tests.helpers.framework_plans import Wanted, plan_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
ALGORITHMS = ("ppo", "grpo", "remax", "rloo", "reinforce_plus_plus", "dapo")
SIZES = {
    "qwen2.5-1.5b": {"tensor": 1, "generation_tensor": 1},
    "qwen2.5-7b": {"tensor": 4, "pipeline": 2, "micro_batch": 3},
    "qwen2.5-32b": {"tensor": 8, "generation_tensor": 8, "recompute": "full"},
}
MIXTURE = {"model": "qwen3-30b-a3b", "expert": 8, "generation_expert": 4}


def product() -> dict[str, Wanted]:
    """Every combination that makes sense, by its name."""
    found = {}
    for algorithm, model, nodes, apart, engine in itertools.product(
        ALGORITHMS, SIZES, (1, 2, 4), (False, True), ("megatron", "fsdp")
    ):
        # Large models on few GPUs do not fit; each further combination takes most of a second.
        if nodes == 1 and model != "qwen2.5-1.5b":
            continue
        if apart and (nodes < 4 or algorithm == "remax"):
            continue
        name = f"{algorithm} {model} on {nodes}, {engine}{', apart' if apart else ''}"
        wanted = Wanted(algorithm=algorithm, model=model, num_nodes=nodes, engine=engine)
        # RLOO has no ratio that corrects for older responses.
        staleness = nodes // 2 if apart and algorithm != "rloo" else 0
        wanted = wanted.but(apart=apart, staleness=staleness, continuous=staleness > 1)
        found[name] = wanted.but(**SIZES[model])
    for algorithm in ALGORITHMS[:2]:
        found[f"{algorithm} mixture"] = Wanted(algorithm=algorithm, num_nodes=4, **MIXTURE)
    return found


def plans() -> dict[str, Plan]:
    """Those that fit."""
    found = {}
    for name, wanted in product().items():
        try:
            found[name] = plan_of(wanted)
        except InfeasibleError:
            continue
    return found


def test_every_export_is_accepted_and_says_what_the_plan_says(tmp_path: Path) -> None:
    made = plans()
    assert len(made) >= 100
    refused = {name: refusals(subject(plan)) for name, plan in made.items()}
    assert {name: why for name, why in refused.items() if why} == {}
    wrong = {name: differences(asked) for name, asked in ask(made, tmp_path).items()}
    assert {name: each for name, each in wrong.items() if each} == {}


def test_what_we_refuse_and_call_unchecked_verl_lets_through(tmp_path: Path) -> None:
    found = ask(accepted_by_verl(), tmp_path)
    assert {name: each.verdict.get("error") for name, each in found.items()} == dict.fromkeys(found)
