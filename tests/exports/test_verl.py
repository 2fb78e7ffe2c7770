"""verl's own code on a sample of exports and on hostile names."""

from pathlib import Path

import pytest

from automap.planner.plan.types import Plan
from tests.exports.asked import VERL, Asked, ask, differences, verdicts
from tests.exports.own_code import MISSING
from tests.helpers.carried import carrying
from tests.helpers.framework_plans import SAMPLE, Wanted, plan_of

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
NAMES = {
    "${oc.env:HOME} it's \\' \\ \"quoted\" \\": "${oc.env:HOME} it's \\' \\ \"quoted\" \\",
    "$(touch owned)`touch owned`;\ntouch owned\n": "$(touch owned)`touch owned`; touch owned",
    "a=b,c {d: e} [f] # g": "a=b,c {d: e} [f] # g",
}
"""Name of a plan → what verl's run is called."""
INTO = (
    ("sample ppo", "sample ppo, fsdp"),
    ("sample ppo, fsdp", "sample ppo"),
    ("sample rloo, apart", "sample grpo, fsdp, apart"),
)
"""Plans that are also written into another one's launch."""
IGNORED = (
    "critic.ppo_micro_batch_size_per_gpu=77",
    "critic.use_dynamic_bsz=True",
    "critic.ppo_max_token_len_per_gpu=77",
    "critic.forward_micro_batch_size_per_gpu=77",
    "critic.forward_max_token_len_per_gpu=77",
    "critic.ulysses_sequence_parallel_size=8",
)
"""Keys of the critic that are described as without effect."""


def named(name: str) -> Plan:
    plan = plan_of(Wanted(model="qwen2.5-1.5b"))
    return plan.model_copy(update={"name": name})


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Asked]:
    """All launches, which verl reads in one process; models are in a folder with a hostile name."""
    folder = tmp_path_factory.mktemp("it's $(touch owned) {a, b}")
    plans = {f"sample {name}": plan_of(wanted) for name, wanted in SAMPLE.items()}
    plans |= {f"named {name}": named(name) for name in NAMES}
    found = ask(plans, folder, INTO)
    assert [path.name for path in folder.rglob("*owned*")] == []
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_verl_would_run_what_the_plan_says(asked: dict[str, Asked], name: str) -> None:
    assert differences(asked[f"sample {name}"]) == []


def test_what_conversions_carry_is_taken(tmp_path: Path) -> None:
    plans = {name: plan_of(wanted) for name, wanted in SAMPLE.items()}
    found = ask(plans, tmp_path, of=lambda plan: carrying(plan, VERL))
    wrong = {name: differences(each) for name, each in found.items()}
    assert {name: told for name, told in wrong.items() if told} == {}


@pytest.mark.parametrize(("name", "other"), INTO)
def test_verl_would_run_a_plan_that_is_written_into_another_launch(
    asked: dict[str, Asked], name: str, other: str
) -> None:
    assert differences(asked[f"{name} into {other}"]) == []


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_names(asked: dict[str, Asked], name: str) -> None:
    assert asked[f"named {name}"].verdict.get("name") == NAMES[name]


TOO_SMALL = (
    "data.train_batch_size=1",
    # Of micro-batches that are filled with tokens verl asks nothing.
    "actor_rollout_ref.actor.use_dynamic_bsz=False",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
)


@pytest.mark.slow
def test_verl_refuses_what_is_wrong_and_ignores_what_is_described_so(
    asked: dict[str, Asked],
) -> None:
    """That it is asked at all: it knows its keys, and its own asynchrony."""
    grpo, apart = asked["sample grpo"], asked["sample grpo, fsdp, apart"]
    fsdp = asked["sample ppo, fsdp"]
    assert {given.partition("=")[0] for given in IGNORED} == {
        key for key in VERL.without_effect if key.startswith("critic.")
    }
    found = verdicts(
        {
            "unknown key": [*grpo.overrides, "actor_rollout_ref.actor.no_such_key=1"],
            "batch": [*grpo.overrides, *TOO_SMALL],
            "syncs": [*apart.overrides, "trainer.v1.separate_async.parameter_sync_step=7"],
            "without effect": [*fsdp.overrides, *IGNORED],
            "strategy": [*fsdp.overrides, "actor_rollout_ref.actor.strategy=zero3"],
        }
    )
    assert found["without effect"]["critic"] == fsdp.verdict["critic"]
    assert "error" not in found["strategy"]
    words = {"unknown key": "no_such_key", "batch": "train_batch_size", "syncs": "parameter_sync"}
    assert {name for name, word in words.items() if word in found[name].get("error", "")} == set(
        words
    )


def test_in_fp16_verl_has_a_precision_aware_optimizer(asked: dict[str, Asked]) -> None:
    """By itself, whatever its own key says, unless Megatron's says otherwise."""
    aware, optim = "use_precision_aware_optimizer", "actor_rollout_ref.actor.optim"
    given = [each for each in asked["sample optimizer on the host"].overrides if aware not in each]
    half = [*given, "actor_rollout_ref.actor.megatron.dtype=float16"]
    megatrons = f"+{optim}.override_optimizer_config.{aware}=False"
    found = verdicts(
        {
            "bf16": given,
            "fp16": half,
            "verl's key": [*half, f"{optim}.{aware}=False"],
            "Megatron's key": [*half, megatrons],
        }
    )
    assert {name: each["actor"][aware] for name, each in found.items()} == {
        "bf16": False,
        "fp16": True,
        "verl's key": True,
        "Megatron's key": False,
    }
