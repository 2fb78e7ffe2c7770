"""What `automap plan` prints of every example: a page, and every number whole on a narrow one."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from automap.planner import Plan, make_plan
from automap.service.cli.inputs.files import read_spec
from automap.service.cli.plan.timeline import events_of
from automap.service.cli.plan.view import print_plan
from automap.service.cli.terminal import formats

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted(set(FOLDER.glob("*.yaml")) - set(FOLDER.glob("*.run.yaml")))
TAKE_LONG = ("agents-12-models", "safe-rlhf-two-critics")
PAGE_LINES = 40
PAGE_CALLS = 10


def view(plan: Plan, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False)
    print_plan(plan, console, unicode=True)
    return console.file.getvalue().rstrip("\n").split("\n")


def figures(plan: Plan) -> list[str]:
    """The numbers of a plan as its view writes them."""
    found = [formats.count(plan.tokens_per_second), formats.price(plan.run_price)]
    found += [formats.seconds(event.duration_seconds) for event in events_of(plan)]
    for call in plan.calls:
        if call.model_flops_utilization is not None:
            assert call.tokens_per_second_per_gpu is not None
            found += [formats.percent(call.model_flops_utilization)]
            found += [formats.rate(call.tokens_per_second_per_gpu)]
            found += [f"{formats.gib(call.peak_bytes)}/{formats.gib(call.capacity_bytes)}"]
    found += [formats.gib(copy.resident_bytes) for copy in plan.copies]
    return found


def check_views(plan: Plan) -> None:
    for width in (80, 60):
        lines = view(plan, width)
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if "…" in line]
        words = set(" ".join(lines).replace(",", ", ").split())
        whole = {word for each in figures(plan) for word in each.replace(",", ", ").split()}
        assert whole <= words
    if len(plan.calls) <= PAGE_CALLS:
        assert len(view(plan, 80)) <= PAGE_LINES


def planned(file: Path, **search: object) -> Plan:
    spec = read_spec(str(file))
    return make_plan(spec.model_copy(update={"search": spec.search.model_copy(update=search)}))


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file,
            id=file.stem,
            marks=pytest.mark.slow if file.stem.startswith(TAKE_LONG) else (),
        )
        for file in EXAMPLES
    ],
)
def test_a_quick_plan_of_an_example_fits_a_page(file: Path) -> None:
    check_views(planned(file, optimality_gap=0.5))


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_plan_of_an_example_fits_a_page(file: Path) -> None:
    check_views(planned(file))
