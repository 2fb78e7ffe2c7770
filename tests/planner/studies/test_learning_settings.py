"""What launches say of learning, by the keys of every framework."""

import fnmatch
from types import SimpleNamespace
from typing import Any

import pytest

from automap.planner.frameworks.description import framework, framework_names
from automap.planner.studies.learning_settings import ALIKE, BOTH_CLIPS, DECAYS, LEAST
from automap.planner.studies.learning_words import keys_of as keys_together
from automap.planner.studies.learning_words import worded

TARGETS = {name.partition("@")[0]: name for name in framework_names()}
VERL = "actor_rollout_ref.actor"
SKYRL = "trainer.policy.optimizer_config.num_warmup_steps"


def keys_of(name: str) -> set[str]:
    tables = (*ALIKE.values(), *LEAST.values(), BOTH_CLIPS)
    own = (key for keys in keys_together(framework(TARGETS[name])) for key in keys)
    found = {key for keys in tables for who, key in keys.items() if who.split()[0] == name}
    return found | set(own) | {schedule for rate, schedule in DECAYS.items() if rate in found}


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


def said(
    source: str, given: dict[str, str], target: str, *, updates: int = 1, algorithm: str = "grpo"
) -> dict[str, str]:
    """What a conversion says of averages and warm-ups."""
    workload = SimpleNamespace(updates_per_epoch=updates, epochs=1)
    spec = SimpleNamespace(workload=workload, algorithm=algorithm)
    settings = [SimpleNamespace(key=key, value=value) for key, value in given.items()]
    imported: Any = SimpleNamespace(target=TARGETS[source], settings=settings, values={}, spec=spec)
    subject: Any = SimpleNamespace(
        framework=framework(TARGETS[target]), homes={"actor": None}, job=SimpleNamespace(spec=spec)
    )
    return worded(imported, subject)


@pytest.mark.parametrize(
    ("source", "given", "target", "expected"),
    [
        ("verl", {f"{VERL}.loss_agg_mode": "token-mean"}, "trl", {"--loss_type": "dapo"}),
        (
            "verl",
            {f"{VERL}.loss_agg_mode": "'seq-mean-token-mean'"},
            "skyrl",
            {"trainer.algorithm.loss_reduction": "sequence_mean"},
        ),
        (
            "slime",
            {"--calculate-per-token-loss": "True"},
            "nemo-rl",
            {"loss_fn.token_level_loss": "true"},
        ),
        (
            "nemo-rl",
            {"loss_fn.token_level_loss": "False"},
            "openrlhf",
            {"--actor.loss_agg_mode": "seq-mean-token-mean"},
        ),
        ("trl", {"--loss_type": "grpo"}, "slime", {"--calculate-per-token-loss": "False"}),
        # Lengths that sums are divided by differ; and AReaL has no such key.
        ("verl", {f"{VERL}.loss_agg_mode": "seq-mean-token-sum-norm"}, "trl", {}),
        ("trl", {"--loss_type": "bnpo"}, "verl", {}),
        ("verl", {f"{VERL}.loss_agg_mode": "token-mean"}, "areal", {}),
    ],
)
def test_averages_go_where_a_word_means_the_same(
    source: str, given: dict[str, str], target: str, expected: dict[str, str]
) -> None:
    assert said(source, given, target) == expected


def test_a_trainer_without_a_word_for_averages_is_told_none() -> None:
    given = {f"{VERL}.loss_agg_mode": "token-mean"}
    assert said("verl", given, "trl", algorithm="rloo") == {}


@pytest.mark.parametrize(
    ("source", "given", "target", "expected"),
    [
        # Iterations of verl are four optimizer steps each.
        ("verl", {f"{VERL}.optim.lr_warmup_steps": "5"}, "skyrl", {SKYRL: "20"}),
        ("skyrl", {SKYRL: "20"}, "verl", {f"{VERL}.optim.lr_warmup_steps": "5"}),
        ("skyrl", {SKYRL: "21"}, "verl", {}),
        ("skyrl", {SKYRL: "21"}, "slime", {"--lr-warmup-iters": "21"}),
        ("verl", {f"{VERL}.optim.lr_warmup_steps_ratio": "0.1"}, "trl", {"--warmup_steps": "0.1"}),
        ("trl", {"--warmup_steps": "0.1"}, "openrlhf", {"--actor.lr_warmup_ratio": "0.1"}),
        ("trl", {"--warmup_steps": "8"}, "verl", {f"{VERL}.optim.lr_warmup_steps": "2"}),
        # No warm-up is none by any count.
        ("skyrl", {SKYRL: "0"}, "openrlhf", {"--actor.lr_warmup_ratio": "0.0"}),
        ("openrlhf", {"--actor.lr_warmup_ratio": "0"}, "skyrl", {SKYRL: "0"}),
        # Steps that are not above 0 leave it to the share.
        (
            "verl",
            {f"{VERL}.optim.lr_warmup_steps": "-1", f"{VERL}.optim.lr_warmup_steps_ratio": "0.2"},
            "areal",
            {"actor.optimizer.warmup_steps_proportion": "0.2"},
        ),
        # How many steps a share is depends on the run.
        ("openrlhf", {"--actor.lr_warmup_ratio": "0.1"}, "skyrl", {}),
        ("verl", {f"{VERL}.optim.lr_warmup_steps": "5"}, "areal", {}),
        ("verl", {f"{VERL}.optim.lr_warmup_steps": "5"}, "nemo-rl", {}),
    ],
)
def test_warm_ups_end_where_they_did(
    source: str, given: dict[str, str], target: str, expected: dict[str, str]
) -> None:
    assert said(source, given, target, updates=4) == expected
