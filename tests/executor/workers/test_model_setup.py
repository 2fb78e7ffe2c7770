"""Where the copies of a run get their weights from."""

from pathlib import Path

import pytest

from automap.executor.settings import RunSettings
from automap.executor.workers.model_setup import _folder_of
from automap.planner.job.resolution import resolve
from tests.helpers.small_jobs import small_job

ACTOR, REWARD, OWN = Path("/actor"), Path("/reward"), Path("/own")


@pytest.mark.parametrize(
    ("reward", "critic", "given", "expected"),
    [
        # A reward model values already; a function has no weights, and the policy's are next best.
        ({"architecture": "qwen2.5-0.5b"}, "qwen2.5-0.5b", {"reward": REWARD}, REWARD),
        ({"architecture": "qwen2.5-0.5b"}, "qwen2.5-0.5b", {}, None),
        ({"function": True}, "qwen2.5-0.5b", {}, ACTOR),
        ({"function": True}, "qwen2.5-0.5b", {"critic": OWN}, OWN),
        ({"function": True}, "qwen2.5-1.5b", {}, None),
    ],
)
def test_a_critic_begins_as_what_it_values_or_as_the_policy(
    reward: dict[str, object], critic: str, given: dict[str, Path], expected: Path | None
) -> None:
    spec = small_job("ppo", models__reward=reward, models__critic={"architecture": critic})
    models = {"actor": ACTOR, **given}
    settings = RunSettings.model_construct(models=models)
    assert _folder_of(resolve(spec), "critic", settings) == expected
    assert _folder_of(resolve(spec), "reference", settings) == ACTOR
