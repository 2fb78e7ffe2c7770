"""Twenty impossible jobs: how soon each is refused, and whether what is proposed makes it possible.

    python -m benchmarks.infeasible [--only NUMBER …]

Every job is planned with a limit of 30 s; the seconds are those to its refusal. Then each proposed
change is made and the job planned again with a limit of 20 s: `true` where that has a plan, `false`
where it is impossible still. The command exits with 1 where a proposal is false.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from automap import InfeasibleError, JobSpec, make_plan
from automap.planner.errors import NoSolutionInTimeError, Reason
from automap.planner.infeasible.changes import Change
from automap.planner.infeasible.reasons import REMEDY_SECONDS, diagnose
from automap.planner.infeasible.remedies import FeasibilityProbe, least_risk, remedy_of
from automap.planner.job.job import Job

JOBS = (
    # algorithm, model, GPU, nodes, longest response
    ("safe_rlhf", "qwen2.5-32b", "l40s", 1, 8_192),
    ("ppo", "qwen2.5-14b", "a100-40gb-sxm", 1, 131_072),
    ("grpo", "qwen2.5-32b", "a100-40gb-sxm", 1, 8_192),
    ("ppo", "qwen2.5-32b", "h100", 1, 8_192),
    ("remax", "llama-3.1-70b", "h100", 1, 4_096),
    ("grpo", "llama-3.1-70b", "a100", 1, 8_192),
    ("safe_rlhf", "llama-3.1-70b", "h100", 2, 4_096),
    ("ppo", "llama-3.1-70b", "l40s", 4, 2_048),
    ("grpo", "mixtral-8x7b", "a100", 1, 4_096),
    ("grpo", "qwen3-30b-a3b", "l40s", 1, 8_192),
    ("grpo", "qwen3-235b-a22b", "h800", 4, 8_192),
    ("ppo", "qwen3-235b-a22b", "h100", 4, 4_096),
    ("safe_rlhf", "qwen3-235b-a22b", "h200", 4, 4_096),
    ("grpo", "llama-3.1-405b", "h100", 8, 4_096),
    ("ppo", "llama-3.1-405b", "h200", 4, 4_096),
    ("grpo", "deepseek-v3", "h800", 16, 8_192),
    ("grpo", "deepseek-v3", "h200", 8, 8_192),
    ("rloo", "kimi-k2", "h800", 32, 8_192),
    ("grpo", "llama-3.1-70b", "h100", 4_096, 8_000_000),
    ("ppo", "llama-3.1-405b", "l40s", 16, 65_536),
)
ROLES = {
    "grpo": ("actor", "reference"),
    "rloo": ("actor", "reference"),
    "remax": ("actor", "reference"),
    "ppo": ("actor", "critic", "reference"),
    "safe_rlhf": ("actor", "critic", "cost_critic", "reference"),
}


@dataclass
class Answer:
    """What a job came to."""

    seconds: float
    reason: str
    changes: list[Change] = field(default_factory=list)
    """In the order in which they are proposed."""


def job_of(algorithm: str, model: str, gpu: str, nodes: int, longest: int) -> JobSpec:
    """Its spec: every role the same model, rewards a function."""
    trained = {role: {"architecture": model} for role in ROLES[algorithm]}
    rewards = ("reward", "cost") if algorithm == "safe_rlhf" else ("reward",)
    functions = {
        role: {"function": True, "seconds_per_response": 0.01, "concurrency": 64}
        for role in rewards
    }
    return JobSpec.model_validate(
        {
            "name": f"{algorithm}-{model}-{nodes}x{gpu}",
            "algorithm": algorithm,
            "models": trained | functions,
            "workload": {
                "prompts_per_iteration": 512,
                "responses_per_prompt": 8 if algorithm in ("grpo", "rloo") else 1,
                "prompt_length": {"mean": 512, "max": 1024},
                "response_length": {"mean": longest // 4, "max": longest},
            },
            "cluster": {"pools": [{"name": gpu, "gpu": gpu, "num_nodes": nodes}]},
            "search": {"time_limit_seconds": 30},
        }
    )


def answered(spec: JobSpec) -> Answer | None:
    """How a job is refused; None: it has a plan."""
    changes: list[Change] = []

    def explain(job: Job) -> list[Reason]:
        found = diagnose(job)
        deadline = time.process_time() + REMEDY_SECONDS
        probe = FeasibilityProbe(found.suspect, over_bytes=found.over_bytes, deadline=deadline)
        changes.extend(least_risk(job.spec, probe)[1] if not found.no_layout else [])
        changes.extend(probe.single_changes(job.spec) if not found.no_layout else [])
        if not changes and not probe.overdue and (every := probe.all_changes(job.spec)):
            changes.append(every)
        return [*found.reasons, *map(remedy_of, changes)]

    started = time.perf_counter()
    try:
        make_plan(spec, explain=explain)
    except InfeasibleError as error:
        return Answer(time.perf_counter() - started, error.reasons[0].summary, changes)
    except NoSolutionInTimeError as error:
        return Answer(time.perf_counter() - started, str(error))
    return None


def holds(change: Change) -> str:
    """Whether the changed job has a plan."""
    search = change.spec.search.model_copy(update={"time_limit_seconds": 20.0})
    try:
        make_plan(change.spec.model_copy(update={"search": search}), explain=lambda _: [])
    except InfeasibleError:
        return "false"
    except NoSolutionInTimeError:
        return "not shown"
    return "true"


def main() -> int:
    """Plan them all and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER")
    wanted = parser.parse_args().only or range(len(JOBS))
    table = Table("#", "job", "s", "first of", "proposed", "holds")
    seconds, verdicts = [], []
    for number in wanted:
        answer = answered(job_of(*JOBS[number]))
        name = f"{JOBS[number][0]}, {JOBS[number][1]}, {JOBS[number][3]} × {JOBS[number][2]}"
        if answer is None:
            table.add_row(str(number), name, "", "", "it has a plan", "")
            continue
        seconds.append(answer.seconds)
        held = [holds(change) for change in answer.changes]
        verdicts += held
        first = answer.changes[0].text if answer.changes else "nothing"
        told = ", ".join(f"{held.count(each)} {each}" for each in dict.fromkeys(held))
        table.add_row(
            str(number), name, f"{answer.seconds:.1f}", str(len(answer.changes)), first, told
        )
    console = Console(width=max(Console().width, 140))
    console.print(table)
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    console.print(
        f"{len(seconds)} refused after {statistics.median(seconds):.1f} s (median), "
        f"{max(seconds):.1f} s (most); proposals: {counts}"
    )
    return 1 if "false" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
