"""What answers of several plans cost beside planning each of their plans by itself.

    python -m benchmarks.studies [example.yaml] [--nodes 1 2 4] [--repeat 3]

Prints, as medians of processor time: the Pareto front of an example (default: GRPO with LoRA on 16
H100) over planning on every number of nodes; what-if over planning on each cluster; and, of a job
that fits nowhere, the message and the explanation with plans over one plan that fits.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from automap.planner.errors import InfeasibleError
from automap.planner.job.resolution import resolve
from automap.planner.planning import make_plan
from automap.planner.spec import JobSpec
from automap.planner.studies.infeasibility_report import explain_refusal
from automap.planner.studies.pareto import pareto
from automap.planner.studies.what_if import cases_of, what_if

EXAMPLES = Path(__file__).parent.parent / "examples"
DEFAULT = EXAMPLES / "grpo-lora-llama-3.1-70b-16xh100.yaml"


def seconds_of(work: Callable[[], object], repeat: int) -> float:
    """Median processor time, after one uncounted run."""
    measured = []
    for _ in range(repeat + 1):
        before = time.process_time()
        work()
        measured.append(time.process_time() - before)
    return statistics.median(measured[1:])


def on_every_number_of_nodes(spec: JobSpec) -> None:
    """Plan with all but so many nodes of the first pool kept free."""
    pool = resolve(spec).pools[0]
    for nodes in range(pool.num_nodes):
        kept = {pool.name: nodes * pool.gpus_per_node} if nodes else {}
        constraints = spec.constraints.model_copy(update={"keep_free_gpus": kept})
        planned_or_not(spec.model_copy(update={"constraints": constraints}))


def planned_or_not(spec: JobSpec) -> None:
    """Plan without asking why there is no plan."""
    with suppress(InfeasibleError):
        make_plan(spec, explain=lambda _: [])


def impossible(spec: JobSpec) -> JobSpec:
    """The job with all its parameters trained, on one GPU."""
    roles = {role: model.model_copy(update={"lora": None}) for role, model in spec.models.items()}
    pool = spec.cluster.pools[0]  # type: ignore[union-attr]
    one = pool.model_copy(update={"num_nodes": 1, "gpus_per_node": 1})
    cluster = spec.cluster.model_copy(update={"pools": [one]})  # type: ignore[union-attr]
    return spec.model_copy(update={"models": roles, "cluster": cluster})


def message(spec: JobSpec) -> None:
    """What planning an infeasible job takes, its reasons included."""
    try:
        make_plan(spec)
    except InfeasibleError:
        return
    raise ValueError(f"{spec.name} fits on one GPU; give a larger job")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("example", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--nodes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    spec = JobSpec.model_validate(yaml.safe_load(given.example.read_text(encoding="utf-8")))
    cases = cases_of(spec, nodes=given.nodes, gpus=(), pool=None)
    tight = impossible(spec)
    rows = (
        ("Pareto front", lambda: pareto(spec), lambda: on_every_number_of_nodes(spec)),
        (
            f"what-if on {', '.join(map(str, given.nodes))} nodes",
            lambda: what_if(spec, nodes=given.nodes),
            lambda: [planned_or_not(case.job.spec) for case in cases],
        ),
        ("infeasible: the message", lambda: message(tight), lambda: make_plan(spec)),
        (
            "infeasible: explained with plans",
            lambda: explain_refusal(tight),
            lambda: make_plan(spec),
        ),
    )
    table = Table(title=given.example.name, box=None)
    for name in ("answer", "s", "plans alone s", "ratio"):
        table.add_column(name, justify="left" if name == "answer" else "right")
    for name, together, apart in rows:
        one, other = seconds_of(together, given.repeat), seconds_of(apart, given.repeat)
        table.add_row(name, f"{one:.2f}", f"{other:.2f}", f"{one / other:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
