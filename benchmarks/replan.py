"""Keep or move: how long the answer takes, with the job's tables kept and without.

PPO with four 70B models, or another example with one pool, 8 responses per GPU. For every situation
the seconds of the first answer of a process that knows nothing of the job (it prices it first);
then, with the tables kept as a service keeps them, the median over repetitions by the clock and in
processor seconds (on a busy machine only these compare), what was found, and how far it is from the
best plan, which an ordinary search finds afterwards with its full time limit.

    python -m benchmarks.replan [example.yaml] [--gpus 256] [--repeat 5] [--no-best]
"""

import argparse
import statistics
import time
from math import inf
from pathlib import Path

import yaml

from automap.planner.explanation.factors import scaled
from automap.planner.explanation.solving import best_within, limits_of
from automap.planner.explanation.study import TableCache, study
from automap.planner.plan.types import Plan
from automap.planner.planning import make_plan
from automap.planner.replanning.cluster_state import changed_spec, factors_of
from automap.planner.replanning.replan import replan
from automap.planner.replanning.result import Replan, ReplanOptions
from automap.planner.spec import JobSpec

EXAMPLE = Path(__file__).parents[1] / "examples" / "hybridflow-ppo-70b-128xa100.yaml"
TARGET_SECONDS = 0.2
"""At 256 GPUs, with the tables kept."""


def job(example: Path, num_gpus: int) -> JobSpec:
    """The example on so many GPUs."""
    document = yaml.safe_load(example.read_text(encoding="utf-8"))
    document["cluster"]["pools"][0]["num_nodes"] = num_gpus // 8
    responses = document["workload"].get("responses_per_prompt", 1)
    document["workload"] |= {
        "prompts_per_iteration": 8 * num_gpus // responses,
        "startup_seconds": 300.0,
        "iterations": 500,
    }
    return JobSpec.model_validate(document)


def situations(plan: Plan) -> dict[str, ReplanOptions]:
    """What may become of a plan."""
    seconds = {call.id: call.end_seconds - call.start_seconds for call in plan.calls}
    pool = plan.copies[0].pool

    def measured(name: str, ratio: float) -> ReplanOptions:
        return ReplanOptions(measured={name: ratio * seconds[name]})

    wrong = {
        "generation + 20 %": ("actor.generate", 1.2),
        "actor's training + 30 %": ("actor.train", 1.3),
        "critic's training - 40 %": ("critic.train", 0.6),
        "reference + 100 %": ("reference.forward", 2.0),
    }
    return {
        "as estimated": ReplanOptions(),
        **{name: measured(*error) for name, error in wrong.items() if error[0] in seconds},
        "a node lost": ReplanOptions(lose_nodes={pool: 1}),
        "two nodes lost": ReplanOptions(lose_nodes={pool: 2}),
        "a node added": ReplanOptions(add_nodes={pool: 1}),
    }


def best_seconds(plan: Plan, options: ReplanOptions) -> float:
    """The best plan in that situation, by an ordinary search."""
    given = study(changed_spec(plan.spec, options))
    now = scaled(given, factors_of(given, plan, options))
    solved = best_within(now, inf, limits_of(now, plan.spec.search.time_limit_seconds))
    assert solved.solution is not None
    return solved.solution.timing.period


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("example", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-best", action="store_true")
    given = parser.parse_args()
    plan = make_plan(job(given.example, given.gpus))
    print(f"{given.gpus} GPUs; target {TARGET_SECONDS:g} s with kept tables")
    heads = ("first s", "kept s", "processor", "verdict", "found s", "from best")
    print(f"{'situation':26}" + "".join(f"{head:>11}" for head in heads))
    for name, options in situations(plan).items():
        first, clock, used, answer = timed(plan, options, given.repeat)
        found = min(s for s in (answer.keep_seconds, answer.move_seconds) if s is not None)
        off = "" if given.no_best else f"{100 * (found / best_seconds(plan, options) - 1):.2f} %"
        print(
            f"{name:26}{first:11.3f}{clock:11.3f}{used:11.3f}{answer.verdict:>11}{found:11.2f}{off:>11}"
        )


def timed(plan: Plan, options: ReplanOptions, repeat: int) -> tuple[float, float, float, Replan]:
    """(seconds of the first answer, medians of later ones by clock and processor, the answer)."""
    tables = TableCache()
    started = time.perf_counter()
    replan(plan, options, tables=tables)
    first, clock, used = time.perf_counter() - started, [], []
    for _ in range(repeat):
        started, processor = time.perf_counter(), time.process_time()
        answer = replan(plan, options, tables=tables)
        clock.append(time.perf_counter() - started)
        used.append(time.process_time() - processor)
    return first, statistics.median(clock), statistics.median(used), answer


if __name__ == "__main__":
    main()
