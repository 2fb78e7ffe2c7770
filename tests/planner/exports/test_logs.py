"""Every launch has its run write what `calibrate` reads, or says that it does not."""

import pytest

from automap.planner import Launch, Plan, export
from automap.planner.frameworks import framework_names
from tests.cli.commands import call
from tests.helpers import areal_plans, framework_plans, openrlhf_plans, skyrl_plans, trl_plans
from tests.helpers.framework_plans import Wanted
from tests.helpers.slime_plans import SGLANG

PLANS = {
    "verl@0.9.1": lambda: framework_plans.plan_of(Wanted()),
    "slime@0.3.1": lambda: framework_plans.plan_of(Wanted(workload=SGLANG)),
    "nemo-rl@0.7.0": lambda: framework_plans.plan_of(Wanted()),
    "openrlhf@0.11.2": lambda: openrlhf_plans.plan_of(openrlhf_plans.SAMPLE["grpo"]),
    "trl@1.16.0": lambda: trl_plans.plan_of(trl_plans.SAMPLE["grpo"]),
    "skyrl@0.3.0": lambda: skyrl_plans.plan_of(skyrl_plans.SAMPLE["grpo"]),
    "areal@1.0.4": lambda: areal_plans.plan_of(areal_plans.SAMPLE["grpo"]),
}
TOLD = {
    "verl@0.9.1": "trainer.logger=[console,file]",
    "slime@0.3.1": "--use-tensorboard",
    "nemo-rl@0.7.0": "tensorboard_enabled: true",
    "openrlhf@0.11.2": '--logger.tensorboard_dir="$LOG_FOLDER"',
    "trl@1.16.0": "wandb, mlflow and trackio alone are given the times of calls",
    "skyrl@0.3.0": "trainer.logger=tensorboard",
    "areal@1.0.4": "path: ${cluster.fileroot}/tensorboard",
}
"""Framework → what of its launch has the run write its times."""


@pytest.mark.parametrize("target", framework_names())
def test_what_calibrate_reads_is_written(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan: Plan = PLANS[target]()
    launch: Launch = export(plan, target)
    texts = [launch.script, *launch.files.values()]
    unwrapped = " ".join(" ".join(texts).replace("\n#", "").split())
    assert TOLD[target] in unwrapped
    name = target.partition("@")[0]
    (told,) = [line for line in launch.script.splitlines() if line.startswith("#   automap ")]
    words = told.removeprefix("#   automap ").split()
    assert words[:4] == ["calibrate", "LOG", "--format", name]
    code, _, err = call(
        capsys, *words
    )  # As it stands it lacks nothing but the files that it names.
    assert (code, "PLAN.json" in err) == (2, True), err
    assert "How far off it is (LOG is " in launch.script
