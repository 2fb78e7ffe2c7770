"""Every shipped example is a valid job, down to the catalogue names and the traced dataflow."""

from pathlib import Path

import pytest

from automap.planner.job.resolution import resolve
from automap.service.cli.inputs.files import read_run_settings, read_spec

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(set(FOLDER.glob("*.yaml")) - set(FOLDER.glob("*.run.yaml")))


def test_the_examples_named_in_the_readme_exist():
    names = {file.stem for file in EXAMPLES}
    assert {"hybridflow-ppo-70b-128xa100", "tiny-ppo-cpu", "grpo-two-pools-h100-l40s"} <= names


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_resolves(file):
    job = resolve(read_spec(str(file)))
    assert job.dataflow.calls
    assert job.num_gpus >= 2


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_gpus_in_a_file_name_are_those_of_its_cluster(file):
    count = file.stem.rpartition("-")[2].partition("x")[0]
    if count.isdecimal():
        assert resolve(read_spec(str(file))).num_gpus == int(count)


def test_hybridflow_examples_scale_the_prompts_with_the_gpus():
    for num_gpus in (128, 1024, 4096):
        spec = read_spec(str(FOLDER / f"hybridflow-ppo-70b-{num_gpus}xa100.yaml"))
        assert spec.workload.prompts_per_iteration == 8 * num_gpus
        assert spec.workload.old_log_probs == "rollout"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.run.yaml")), ids=lambda file: file.stem)
def test_examples_that_run_write_checkpoints(file):
    spec = read_spec(str(file).replace(".run.yaml", ".yaml"))
    settings = read_run_settings(str(file), beside=str(file), spec=spec)
    assert settings.checkpoint.every_iterations is not None
