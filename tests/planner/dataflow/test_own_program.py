"""Programs of users: found by name, traced into a spec, and compared with a plan's dataflow."""

import sys
from pathlib import Path
from typing import Any

import pytest

from automap.planner.dataflow.algorithms import PROGRAMS
from automap.planner.dataflow.algorithms.program import Data, Models, Ops, Program
from automap.planner.dataflow.user_program import check_program, job_spec, load_program
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "own_algorithm.py")
ROLES = {
    "ppo": ("actor", "critic", "reference", "reward"),
    "grpo": ("actor", "reference", "reward"),
    "remax": ("actor", "reference", "reward"),
    "safe_rlhf": ("actor", "critic", "reference", "reward", "cost", "cost_critic"),
    "rloo": ("actor", "reward"),
    "reinforce_plus_plus": ("actor", "reference", "reward"),
    "dapo": ("actor", "reward"),
}


def document(*roles: str, **workload: Any) -> dict[str, Any]:
    """A job without algorithm."""
    return {
        "name": "own",
        "models": {role: {"architecture": "tiny-llama"} for role in roles},
        "workload": {
            "prompts_per_iteration": 12,
            "responses_per_prompt": 4,
            "prompt_length": {"mean": 8, "max": 8},
            "response_length": {"mean": 8, "max": 8},
            "kl": "reward" if "reference" in roles else "none",
            **workload,
        },
        "cluster": {"pools": [{"name": "cpu", "gpu": "cpu", "num_nodes": 1, "gpus_per_node": 2}]},
    }


def program(run: Any, *roles: str, ratio: bool = True) -> Program:
    return Program("mine", run, roles or ("actor", "reward"), (), ratio, "none")


def two_steps(models: Models, prompts: Data, ops: Ops) -> None:
    rollout = models.actor.generate(prompts)
    scores = models.reward.score(rollout)
    models.actor.train(rollout, loss="policy_gradient", advantages=scores)


def told(error: pytest.ExceptionInfo[SpecError]) -> str:
    return str(error.value)


@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_an_own_copy_of_a_built_in_program_is_the_same_job(algorithm: str) -> None:
    workload = {"expected_acceptance": 0.3} if algorithm == "dapo" else {}
    given = document(*ROLES[algorithm], **workload)
    built_in = resolve(JobSpec.model_validate({**given, "algorithm": algorithm})).dataflow
    spec = job_spec(given, PROGRAMS[algorithm])
    own = resolve(JobSpec.model_validate_json(spec.model_dump_json())).dataflow
    assert own.calls == built_in.calls
    assert set(own.edges) == set(built_in.edges)
    assert spec.algorithm is None
    check_program(PROGRAMS[algorithm], spec)


def test_a_plan_of_an_own_program_has_its_calls() -> None:
    plan = make_plan(job_spec(document("actor", "reward"), program(two_steps)))
    assert [call.id for call in plan.calls] == ["actor.generate", "reward.forward", "actor.train"]
    assert plan.algorithm is None


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("own_algorithm.py", "names no program (write file.py:NAME)"),
        ("nowhere.py:PROGRAM", "cannot import nowhere.py: FileNotFoundError"),
        ("no.such.module:PROGRAM", "cannot import no.such.module: ModuleNotFoundError"),
        (f"{EXAMPLE}:OTHER", "has no such name (its programs are PROGRAM)"),
        (f"{EXAMPLE}:longest_run", "has a function of that name (its programs are PROGRAM)"),
        (
            "automap.planner.dataflow.trace:trace",
            "has a function of that name (define NAME = Program(…))",
        ),
    ],
)
def test_a_wrong_path_is_told(path: str, complaint: str) -> None:
    with pytest.raises(SpecError) as error:
        load_program(path, field="program")
    assert complaint in told(error)
    assert error.value.field == "program"


def test_a_file_and_a_module_are_found() -> None:
    assert load_program(f"{EXAMPLE}:PROGRAM").name == "better_half"
    assert load_program("automap.planner.dataflow.algorithms.ppo:PROGRAM") is PROGRAMS["ppo"]


@pytest.mark.parametrize("name", ["mine.py", "dataclasses.py"])
def test_a_file_may_postpone_annotations_and_be_called_as_what_it_imports(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from automap.planner.dataflow.algorithms.ppo import PROGRAM\n"
        "@dataclass\nclass Threshold:\n    at: float = 0.5\n"
    )
    modules = dict(sys.modules)
    assert load_program(f"{path}:PROGRAM") is PROGRAMS["ppo"]
    assert sys.modules == modules


def test_a_program_that_raises_is_named() -> None:
    def looks_inside(models: Models, prompts: Any, ops: Ops) -> None:
        models.actor.generate(prompts["tokens"])

    with pytest.raises(SpecError, match="mine raised TypeError"):
        job_spec(document("actor", "reward"), program(looks_inside))
    with pytest.raises(SpecError, match="does not declare a role critic"):
        job_spec(document("actor"), program(lambda m, p, o: m.critic.values(p)))


def test_roles_are_those_of_the_program() -> None:
    with pytest.raises(SpecError, match=r"models\.reward: the algorithm calls this role"):
        job_spec(document("actor"), program(two_steps))
    with pytest.raises(SpecError, match=r"models\.critic: no call of the dataflow uses this role"):
        make_plan(job_spec(document("actor", "reward", "critic"), program(two_steps)))


def test_staleness_needs_an_importance_ratio() -> None:
    given = {**document("actor", "reward"), "search": {"staleness": 1}}
    with pytest.raises(SpecError, match="declares no importance ratio"):
        job_spec(given, program(two_steps, ratio=False))
    assert job_spec(given, program(two_steps)).search.staleness == 1


def test_an_acceptance_that_nothing_reads_is_refused() -> None:
    with pytest.raises(SpecError, match=r"expected_acceptance: is 0\.5, but mine does not read it"):
        job_spec(document("actor", "reward", expected_acceptance=0.5), program(two_steps))


def test_what_a_dataflow_cannot_say_is_refused() -> None:
    given = document("actor", "critic", "reward", pretrain_loss=True)
    with pytest.raises(SpecError, match="a pre-train loss"):
        job_spec(given, PROGRAMS["ppo"])


def test_a_program_with_other_calls_than_the_plan_is_refused() -> None:
    spec = job_spec(document("actor", "reward"), program(two_steps))

    def scores_twice(models: Models, prompts: Data, ops: Ops) -> None:
        rollout = models.actor.generate(prompts)
        models.reward.score(rollout)
        scores = models.reward.score(rollout, name="again")
        models.actor.train(rollout, loss="policy_gradient", advantages=scores)

    lacks = r"the dataflow lacks the call \{id: reward.forward.again, role: reward, kind: forward\}"
    with pytest.raises(SpecError, match=lacks):
        check_program(program(scores_twice), spec)
    twice = job_spec(document("actor", "reward"), program(scores_twice))
    with pytest.raises(SpecError, match=r"it never makes the call \{id: reward.forward.again"):
        check_program(program(two_steps), twice)


def test_a_program_that_waits_for_more_than_the_plan_is_refused() -> None:
    spec = job_spec(document("actor", "reward"), program(two_steps))
    assert spec.dataflow is not None
    edges = [each for each in spec.dataflow.edges if each.source != "reward.forward"]
    loose = spec.model_copy(update={"dataflow": spec.dataflow.model_copy(update={"edges": edges})})
    with pytest.raises(SpecError, match=r"actor.train wait for reward.forward, the dataflow does"):
        check_program(program(two_steps), loose)
