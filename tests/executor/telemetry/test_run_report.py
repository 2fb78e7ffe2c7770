"""The run report: measured beside predicted, as JSON and for people."""

import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console, Group

from automap.executor.telemetry.call_records import BytesKind
from automap.executor.telemetry.provenance import device_fingerprint, provenance
from automap.executor.telemetry.run_report import (
    BytesComparison,
    CallReport,
    Comparison,
    DeviceFingerprint,
    RunOutcome,
    RunProvenance,
    RunReport,
    Spread,
    build_report,
)
from automap.executor.telemetry.run_report_view import (
    render_measured,
    render_outcome,
    times,
    two_digits,
)
from automap.planner import catalogue
from automap.planner.cost.transition import sync_bucket_bytes
from automap.planner.plan.types import CallPlacement, CopyPlacement, Parallelism, Placement, Plan
from automap.planner.planning import estimate
from automap.planner.spec import JobSpec
from tests.executor.telemetry.clock import Clock, recorded_run
from tests.helpers.specs import job_spec

TRAINING = Parallelism(tensor_parallel_size=2, data_parallel_size=2, sharding="optimizer")
SCORING = Parallelism(tensor_parallel_size=4)
ORIGIN = RunProvenance(
    code_version="0.1.0",
    versions={"torch": "2.13.0", "vllm": None},
    device=DeviceFingerprint(name="Some GPU", kind="cuda", num_devices=8, memory_bytes=80 * 2**30),
)
DONE = RunOutcome(state="succeeded", started_at=datetime(2026, 1, 1, tzinfo=UTC))


def spec(**search: Any) -> JobSpec:
    return job_spec(
        "grpo",
        models={
            "actor": {"architecture": "llama-2-7b"},
            "reference": {"architecture": "llama-2-7b"},
            "reward": {"function": True},
        },
        cluster={"pools": [{"name": "a100", "gpu": "a100-80gb-sxm", "num_nodes": 1}]},
        search=search,
    )


@cache
def plan(*, engine: Parallelism, home: Parallelism = TRAINING, shadow: bool = False) -> Plan:
    """GRPO on 4 GPUs; a shadow generates on the other 4."""
    copies = [
        CopyPlacement(
            id=name,
            role=name.partition(".")[0],
            kind="shadow" if "shadow" in name else "home",
            pool="a100",
            first_gpu=4 if "shadow" in name else 0,
            num_gpus=4,
            layout={"actor": home, "actor.shadow": engine}.get(name, SCORING),
        )
        for name in ("actor", "reference", *(("actor.shadow",) if shadow else ()))
    ]
    generate = CallPlacement(
        id="actor.generate",
        role="actor",
        kind="generate",
        copy_id="actor.shadow" if shadow else "actor",
        parallelism=engine,
        kv_cache_bytes=12 * 2**30,
    )
    others = [
        CallPlacement(
            id=f"{role}.{kind}",
            role=role,
            kind=kind,
            copy_id=role,
            parallelism=home if role == "actor" else SCORING,
            micro_batch_size=1,
            recompute="full" if kind == "train" else None,
        )
        for role, kind in (("actor", "forward"), ("reference", "forward"), ("actor", "train"))
    ]
    reward = CallPlacement(id="reward.forward", role="reward", kind="forward")
    placement = Placement(copies=copies, calls=[generate, *others[:2], reward, others[2]])
    return estimate(spec(staleness=1) if shadow else spec(), placement)


METRICS = {
    iteration: {"perf/total_num_tokens": 1650.0, "critic/score/mean": 0.1 * iteration}
    for iteration in (1, 2, 3)
}


def report(**changes: Any) -> RunReport:
    given: dict[str, Any] = {"outcome": DONE, "provenance": ORIGIN, "metrics": METRICS}
    return build_report(
        plan(engine=Parallelism(data_parallel_size=4)), recorded_run().records, **(given | changes)
    )


def call_of(found: RunReport, call_id: str) -> CallReport:
    return next(call for call in found.calls if call.id == call_id)


def test_seconds_stand_beside_the_plans_with_the_warm_up_apart() -> None:
    priced = plan(engine=Parallelism(data_parallel_size=4))
    found = report()
    assert [call.id for call in found.calls] == [
        *(call.id for call in sorted(priced.calls, key=lambda call: call.start_seconds)),
        "group_normalise",
    ]
    generate = call_of(found, "actor.generate").seconds
    expected = next(call for call in priced.calls if call.id == "actor.generate")
    assert generate.predicted == expected.end_seconds - expected.start_seconds
    assert generate.warm_up == [41.0]
    assert generate.measured is not None
    # Iterations 2 and 3 with their reshards; iteration 4 is not complete.
    assert generate.measured.model_dump() == pytest.approx(
        {"median": 13.0, "min": 11.0, "max": 15.0, "count": 2}
    )
    train = call_of(found, "actor.train").seconds.measured
    assert train is not None
    assert train.median == pytest.approx(5.0), "two rounds of an iteration add up"
    assert call_of(found, "reference.forward").seconds.measured is None
    assert call_of(found, "group_normalise").seconds.predicted is None
    assert found.iterations == 3
    assert found.iteration_seconds.predicted == priced.iteration_seconds
    assert found.iteration_seconds.warm_up == [46.5]
    assert found.iteration_seconds.measured is not None
    assert found.iteration_seconds.measured.median == pytest.approx((16.5 + 20.5) / 2)
    assert found.tokens_per_second.measured is not None
    assert found.tokens_per_second.measured.max == pytest.approx(1650 / 16.5)
    assert found.metrics == pytest.approx(METRICS[3])


def test_the_reshard_is_shown_within_its_generate_call() -> None:
    transition = call_of(report(), "actor.generate").transition_seconds
    assert transition is not None
    assert transition.measured is not None
    assert transition.measured.median == pytest.approx(1.0)
    assert transition.predicted is not None
    assert transition.predicted > 0
    assert call_of(report(), "actor.train").transition_seconds is None


def test_bytes_are_those_of_the_worst_iteration() -> None:
    found = call_of(report(), "actor.generate").bytes
    assert found["reshard_received"].measured == 1003
    assert found["peak_memory"].measured == 89, "a peak does not add up with the reshard's"
    priced = plan(engine=Parallelism(data_parallel_size=4))
    assert found["peak_memory"].predicted == priced.calls[0].peak_bytes


def test_weights_are_beside_what_the_plan_counts_of_them() -> None:
    """What trains and the engine's own, as on GPUs; a peak neither adds up nor is forgotten."""
    priced = plan(engine=Parallelism(data_parallel_size=4))
    (home,) = [copy for copy in priced.copies if copy.id == priced.calls[0].copy_id]
    clock = Clock()
    for iteration in (1, 2, 3):
        for held in (50 + iteration, 40):
            kinds: dict[BytesKind, int] = {"generation_weights": held, "peak_weights": held + 9}
            clock.call("actor.generate", 1.0, iteration=iteration, num_bytes=kinds)
        clock.end(iteration, clock.now - 2)
    found = build_report(priced, clock.records, outcome=DONE, provenance=ORIGIN)
    held_bytes = call_of(found, "actor.generate").bytes
    assert held_bytes["generation_weights"].measured == 53
    assert held_bytes["peak_weights"].measured == 62
    size = 2 * catalogue.architecture("llama-2-7b").num_parameters()
    both = 1.5 * size + sync_bucket_bytes()
    assert held_bytes["generation_weights"].predicted == pytest.approx(both, rel=0.03)
    assert home.bytes_by_kind.weights < 0.51 * size, "what trains is half of the model"
    rows = [line.split() for line in text_of(found).splitlines()]
    assert ["actor.generate", "generation", "weights", "20.8", "GiB", "53", "B"] in rows
    assert ["actor.generate", "peak", "weights", "-", "62", "B"] in rows
    assert not any("packed" in row for row in rows), "nothing is"


LAYOUTS = [
    (TRAINING, Parallelism(data_parallel_size=4)),
    (TRAINING, Parallelism(tensor_parallel_size=2, data_parallel_size=2)),
    (
        Parallelism(tensor_parallel_size=2, pipeline_parallel_size=2),
        Parallelism(tensor_parallel_size=2, data_parallel_size=2),
    ),
    (
        Parallelism(data_parallel_size=4, sharding="full"),
        Parallelism(tensor_parallel_size=2, data_parallel_size=2),
    ),
]


@pytest.mark.parametrize(("home", "engine"), LAYOUTS)
def test_predicted_reshard_bytes_are_the_planners(home: Parallelism, engine: Parallelism) -> None:
    """The planner prices the reshard with the same volumes, from the model's size."""
    priced = plan(home=home, engine=engine)
    found = build_report(priced, [], outcome=DONE, provenance=ORIGIN)
    predicted = call_of(found, "actor.generate").bytes["reshard_received"].predicted
    size = 2 * catalogue.architecture("llama-2-7b").num_parameters()
    parts = home.tensor_parallel_size * home.pipeline_parallel_size
    if home.sharding == "full":
        parts *= home.data_parallel_size
    needed = engine.tensor_parallel_size * engine.pipeline_parallel_size
    assert predicted == pytest.approx(size * (1 / needed - 1 / parts), rel=0.03, abs=1)


def test_weight_syncs_to_a_shadow_are_compared_too() -> None:
    priced = plan(engine=Parallelism(tensor_parallel_size=2, data_parallel_size=2), shadow=True)
    (sync,) = priced.transitions
    clock = Clock()
    for iteration in (1, 2):
        since = clock.now
        clock.call(
            "actor.sync",
            0.25,
            iteration=iteration,
            kind="weight_sync",
            num_bytes={"weight_sync_received": 77},
        )
        clock.end(iteration, since)
    found = call_of(
        build_report(priced, clock.records, outcome=DONE, provenance=ORIGIN),
        "actor.sync",
    )
    assert found.seconds.predicted == sync.end_seconds - sync.start_seconds
    assert found.seconds.measured is not None
    assert found.seconds.measured.median == pytest.approx(0.25)
    compared = found.bytes["weight_sync_received"]
    assert (compared.predicted, compared.measured) == (sync.bytes_per_receiver, 77)
    generate = call_of(build_report(priced, [], outcome=DONE, provenance=ORIGIN), "actor.generate")
    assert generate.bytes["reshard_received"].predicted == 0


def test_iterations_after_a_restart_warm_up_too() -> None:
    found = report(warm_up=(1, 3))
    assert found.iteration_seconds.warm_up == [46.5, 20.5]
    assert found.iteration_seconds.measured is not None
    assert found.iteration_seconds.measured.count == 1


def test_a_report_is_json_and_refuses_what_it_does_not_know() -> None:
    found = report(
        metrics={3: {"actor/pg_loss": float("nan"), "actor/lr": None}},
        outcome=RunOutcome(state="failed", cause="actor.train: rank 2: out of memory", restarts=1),
    )
    assert found.metrics == {"actor/pg_loss": None, "actor/lr": None}
    again = RunReport.model_validate_json(found.model_dump_json())
    assert again == found
    with pytest.raises(ValidationError):
        RunReport.model_validate({**found.model_dump(), "extra": 1})
    with pytest.raises(ValidationError):
        found.name = "other"  # type: ignore[misc]


def test_a_run_without_a_single_iteration_has_a_report() -> None:
    priced = plan(engine=Parallelism(tensor_parallel_size=2, data_parallel_size=2))
    failed = RunOutcome(state="failed", cause="no such file")
    found = build_report(priced, [], outcome=failed, provenance=ORIGIN)
    assert found.iterations == 0
    assert "no such file" in text_of(found)


def text_of(found: RunReport, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=False, emoji=False)
    console.print(Group(render_outcome(found), render_measured(found)))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_people_see_predicted_and_measured_side_by_side() -> None:
    found = report(outcome=RunOutcome(state="failed", cause="[bold]rank 2[/bold] died", restarts=2))
    text = text_of(found)
    assert "failed after 3 iterations, resumed 2 times" in text
    assert "cause: [bold]rank 2[/bold] died" in text, "markup of a message is text"
    predicted = call_of(found, "actor.generate").seconds.predicted
    assert predicted is not None
    line = next(line for line in text.splitlines() if line.startswith("actor.generate"))
    assert line.split()[1:] == [
        two_digits(predicted),
        "13",
        f"{two_digits(13 / predicted)}×",
        "11",
        "15",
    ]
    assert "The first iteration (46 s) warms up and is left out." in text
    assert "of which reshard" in text
    moved = next(line for line in text.splitlines() if "reshard received" in line)
    assert "GiB" in moved
    assert moved.endswith("1003 B")
    assert "critic/score/mean" in text
    assert "8 x Some GPU, 80 GiB" in text
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.01564, "0.016"), (0.5, "0.50"), (9.96, "10"), (141.06, "141"), (2310.4, "2,310"), (0, "0")],
)
def test_seconds_have_two_significant_digits_or_are_whole(value: float, shown: str) -> None:
    assert two_digits(value) == shown


def test_no_ratio_is_formed_of_what_is_too_short_to_tell() -> None:
    assert times(0.2, 0.22) == "1.1×"
    assert times(1e-6, 0.0079) == "-"
    assert times(0.2, 0.0009) == "-"
    assert times(None, 0.2) == times(0.2, None) == "-"


def test_small_calls_share_a_row_and_memory_of_a_cpu_process_is_not_compared() -> None:
    found = report()
    small = Spread(median=0.004, min=0.003, max=0.005, count=2)
    calls = [
        CallReport(
            id=name,
            role="",
            kind=kind,
            seconds=Comparison(predicted=predicted, measured=small),
            bytes={"peak_memory": BytesComparison(predicted=18 << 20, measured=703 << 20)},
        )
        for name, kind, predicted in (
            ("reward.forward", "forward", 1e-6),
            ("numerics.gae", "operation", None),
            ("actor.save_state", "checkpoint", None),
        )
    ]
    text = text_of(found.model_copy(update={"calls": calls}))
    assert "reward.forward" not in text.split("Bytes on")[0]
    assert "2 other calls         -   0.0080" in text
    assert "a checkpoint          -   0.0040" in text
    assert "703 MiB" in text, "of a GPU both are what is allocated"
    device = found.provenance.device.model_copy(update={"kind": "cpu"})
    on_cpu = found.provenance.model_copy(update={"device": device})
    text = text_of(found.model_copy(update={"calls": calls, "provenance": on_cpu}))
    assert "703 MiB" not in text


def test_this_machines_provenance() -> None:
    device = device_fingerprint(num_devices=2)
    origin = provenance(device)
    assert device.num_devices == 2
    assert device.memory_bytes > 2**30
    assert origin.versions["python"] == sys.version.split()[0]
    import torch

    assert origin.versions["torch"] == torch.__version__
    assert {"ray", "vllm", "megatron-core"} <= set(origin.versions)


def test_reading_a_report_needs_no_torch() -> None:
    """The service stores and shows reports, and has none of the executor's packages."""
    code = (
        "import sys\n"
        "from automap.executor.telemetry import run_report, run_report_view, chrome_trace\n"
        "import automap.executor.telemetry.call_records,"
        "automap.executor.telemetry.provenance\n"
        "found = {'torch', 'ray', 'vllm', 'megatron', 'transformers'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
