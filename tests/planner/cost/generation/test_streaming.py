"""Streamed responses and tails: their prices, whole plans with them, and what the check refuses."""

import numpy as np
import pytest

from automap.planner.check.check import violations
from automap.planner.cost.generation.kv_cache import kv_bytes_per_token
from automap.planner.cost.generation.streaming import (
    SHARE_STEPS,
    TailEstimates,
    TailSetting,
    outstanding_seconds,
    price_tail,
    ready_shares,
)
from automap.planner.cost.pricing import Pricing
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.layout import GenerationLayouts
from automap.planner.plan.types import CallPlan, Placement, Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.simulation.generation import sampled
from automap.planner.spec import JobSpec
from benchmarks.simulation import CONSTANT, MEAN, PERCENTILES, Case
from tests.helpers.small_jobs import small_job
from tests.helpers.specs import job_spec
from tests.helpers.tailed_jobs import LONG_TAIL, scheduled_job, tailed_job, tailed_plan
from tests.planner.check.broken_plans import shifted, with_call
from tests.planner.simulation.comparison import Generation
from tests.planner.simulation.engine import Requests, run_engine
from tests.planner.simulation.steps import StepCosts

CHUNKS = 8
SHORT = {"mean": 256, "max": 256}
TAIL = TailSetting(2, 0.9)


def simulated_outs(generation: Generation, *, draws: int) -> np.ndarray:
    """When each eighth of a replica's responses has ended, as a mean over draws of lengths."""
    phases, workload = generation.closed_form(), generation.workload
    engine, rng = generation.engine, np.random.default_rng(1)
    per_token = kv_bytes_per_token(generation.model, engine, tokens=1000)
    room = int(generation.kv_cache_bytes[0] // per_token[0])
    count = generation.call.num_sequences
    outs = []
    for _ in range(draws):
        requests = Requests(
            sampled(workload.prompt_length, count, rng),
            sampled(workload.response_length, count, rng),
            np.arange(count),
        )
        run = run_engine(requests, StepCosts.of(phases, row=0, stages=1), cache_tokens=room)
        ends = np.sort(run.finished_seconds)
        outs.append([ends[k * count // CHUNKS - 1] for k in range(1, CHUNKS + 1)])
    return np.mean(outs, axis=0)


@pytest.mark.parametrize(
    ("response", "share", "allowed"),
    [(PERCENTILES, 1.0, 0.03), (MEAN, 1.0, 0.03), (PERCENTILES, 0.3, 0.15), (CONSTANT, 1.0, 0.04)],
)
def test_chunks_are_out_when_the_simulated_engine_has_ended_them(
    response: dict[str, int], share: float, allowed: float
) -> None:
    """As a share of the call's seconds; cost-model.md states the larger one of a short cache."""
    generation = Case("", response, SHORT, 128, cache_share=share).generation()
    phases = generation.closed_form()
    seconds = float((phases.prefill.total + phases.decode.total)[0])
    outs = seconds - outstanding_seconds(phases, CHUNKS)[0]
    simulated = simulated_outs(generation, draws=4)
    assert np.all(np.diff(outs) >= 0)
    assert np.abs(outs - simulated[:-1]).max() < allowed * simulated[-1]


def tail_of(
    sequences: int = 64,
    *,
    setting: TailSetting = TAIL,
    relayout_seconds: float = 0.0,
    **changes: int,
) -> TailEstimates:
    generation = Case("", PERCENTILES, SHORT, sequences, replicas=4, **changes).generation()
    phases = generation.closed_form()
    return price_tail(
        phases,
        setting,
        phases,
        generation.engine,
        chunks=CHUNKS,
        relayout_seconds=relayout_seconds,
    )


def test_a_tail_takes_longer_the_more_moves_there() -> None:
    few, many = tail_of(setting=TailSetting(2, 0.95)), tail_of(setting=TailSetting(2, 0.6))
    assert 0 < few.extra.total[0] < many.extra.total[0]
    assert few.seconds_after_split[0] < many.seconds_after_split[0]
    narrow = tail_of(setting=TailSetting(4, 0.95))
    assert narrow.extra.total[0] > few.extra.total[0]
    assert few.outstanding is not None
    assert np.all(np.diff(few.outstanding[0]) <= 0)


def test_what_is_out_before_the_split_waits_for_the_weights_laid_out_anew() -> None:
    plain, laid_out = (tail_of(relayout_seconds=seconds) for seconds in (0.0, 10.0))
    assert plain.outstanding is not None
    assert laid_out.outstanding is not None
    before = plain.outstanding[0] > plain.seconds_after_split[0]
    assert before.any()
    waited = laid_out.outstanding[0] - plain.outstanding[0]
    assert waited == pytest.approx(np.where(before, 10.0, 0.0))
    assert laid_out.seconds_after_split[0] - plain.seconds_after_split[0] == pytest.approx(10.0)
    assert laid_out.extra.transition[0] == 10.0


def wide_tails(num_nodes: int) -> list[bool]:
    """Whether replicas of four GPUs may become ones of eight, and ones of two of four."""
    pool = {"name": "rack", "gpu": "gb200", "num_nodes": num_nodes}
    lengths = {"workload__response_length": LONG_TAIL}
    job = resolve(job_spec("grpo", cluster={"pools": [pool]}, **lengths))
    pricing, (rack,) = Pricing(job), job.pools
    sizes = {"tensor_parallel_size": [4, 2], "data_parallel_size": [16, 16]}
    one = {"pipeline_parallel_size": [1, 1], "expert_parallel_size": [1, 1]}
    engine = GenerationLayouts(**{name: np.array(column) for name, column in (sizes | one).items()})
    call = next(call for call in job.dataflow.calls if call.kind == "generate")
    cache = np.array([2**36, 2**36])
    priced = pricing.tail(call, rack, engine, kv_cache_bytes=cache, tail=TailSetting(1, 0.9, 2))
    return priced.possible.tolist()


def test_a_wider_group_spans_nodes_only_where_the_whole_pool_is_one_domain() -> None:
    """Of racks of 72 GPUs on nodes of four."""
    assert wide_tails(18) == [True, True]
    assert wide_tails(36) == [False, True]


def test_a_tail_needs_replicas_that_part_and_a_cache_that_holds_it() -> None:
    assert tail_of(setting=TailSetting(2, 0.95)).possible[0]
    assert not tail_of(setting=TailSetting(3, 0.95)).possible[0], "four replicas in three"
    assert not tail_of(setting=TailSetting(4, 0.3)).possible[0], "more than the cache holds"
    assert not tail_of(setting=TailSetting(2, 0.95), pipeline=2).possible[0]


def test_shares_are_rounded_up_and_never_beyond_the_end() -> None:
    shares = ready_shares(np.array([[9.0, 0.02, 0.0]]), np.array([10.0]))
    assert shares.tolist() == [[7 / SHARE_STEPS, 1.0, 1.0]]


def call_of(plan: Plan, call_id: str) -> CallPlan:
    return next(call for call in plan.calls if call.id == call_id)


@pytest.mark.slow
def test_streams_beside_a_tail_shorten_the_iteration() -> None:
    plan, plain = tailed_plan(), make_plan(tailed_job(streaming=False, generation_tail=False))
    assert plan.relative_gap == plain.relative_gap == 0
    assert plan.iteration_seconds < 0.99 * plain.iteration_seconds


def test_calls_run_beside_the_tail_of_the_generation_that_they_score() -> None:
    plan = tailed_plan()
    assert plan.search.status == "optimal"
    generate = call_of(plan, "actor.generate")
    assert generate.tail is not None
    assert generate.bulk_end_seconds is not None
    streamed = [call for call in plan.calls if call.streamed_from]
    assert streamed
    for call in streamed:
        assert call.streamed_from == ["actor.generate"]
        assert generate.bulk_end_seconds <= call.start_seconds < generate.end_seconds
        chunk = (call.end_seconds - call.start_seconds) / plan.spec.search.stream_chunks
        assert call.end_seconds >= generate.end_seconds + chunk - 1e-5


def test_estimate_gives_a_tailed_placement_the_same_price() -> None:
    plan = tailed_plan()
    again = estimate(tailed_job(), Placement.model_validate(plan.placement().model_dump()))
    assert again.iteration_seconds == pytest.approx(plan.iteration_seconds, abs=2e-6)
    assert call_of(again, "actor.generate").tail == call_of(plan, "actor.generate").tail


def test_streams_and_tails_of_plans_are_checked() -> None:
    plan = tailed_plan()
    job = resolve(plan.spec)
    generate = call_of(plan, "actor.generate")
    streamed = next(call for call in plan.calls if call.streamed_from)
    assert generate.tail is not None
    assert generate.bulk_end_seconds is not None
    two = generate.tail.model_copy(update={"num_gpus": 3})
    broken = {
        "is far enough": shifted(plan, streamed.id, -0.5),
        "streams from none, but": with_call(plan, streamed.id, streamed_from=[]),
        "the main phase of call": with_call(
            plan, generate.id, bulk_end_seconds=generate.bulk_end_seconds - 0.1
        ),
        "no proper divisor": with_call(plan, generate.id, tail=two),
        "call actor.generate lasts": with_call(
            plan, generate.id, tail=generate.tail.model_copy(update={"ended_share": 0.5})
        ),
        "which only generate has": with_call(plan, "actor.train", tail=generate.tail),
        "overlap by": with_call(plan, generate.id, tail=None, bulk_end_seconds=None),
    }
    for message, other in broken.items():
        assert message in "; ".join(violations(job, other)), message


def test_streaming_needs_no_tail_where_roles_are_apart() -> None:
    apart = [["actor", "reference"], ["actor", "reward"]]
    seconds = {}
    for streaming in (False, True):
        search = {"streaming": streaming, "num_workers": 1}
        plan = make_plan(small_job("grpo", constraints__separate=apart, search=search))
        seconds[streaming] = plan.iteration_seconds
    assert seconds[True] < 0.97 * seconds[False]


@pytest.mark.slow
def test_a_tensor_size_that_grows_shortens_a_long_tail() -> None:
    plan, plain = (make_plan(scheduled_job(tensor_schedule=each)) for each in (True, False))
    # A simpler plan may stand for the best, so its gap need not be zero.
    assert "the search is complete" in plan.search.stopped
    assert "the search is complete" in plain.search.stopped
    assert plan.iteration_seconds < 0.99 * plain.iteration_seconds
    generate = call_of(plan, "actor.generate")
    assert generate.tail is not None
    assert generate.parallelism is not None
    assert generate.tail.num_gpus == 8
    assert generate.tail.tensor_parallel_size is not None
    assert generate.tail.tensor_parallel_size > generate.parallelism.tensor_parallel_size
    assert generate.bulk_end_seconds is None, "no GPU is free before the end"
    # The tail's weights lie beside the others, and the reshard and the second prefill take time.
    shard = 2 * 8e9 / generate.tail.tensor_parallel_size
    assert generate.bytes_by_kind.weights > 0.95 * shard
    assert generate.seconds_by_part.transition > 0
    again = estimate(plan.spec, Placement.model_validate(plan.placement().model_dump()))
    assert again.iteration_seconds == pytest.approx(plan.iteration_seconds, abs=2e-6)
    narrow = generate.tail.model_copy(update={"tensor_parallel_size": 2})
    broken = with_call(plan, generate.id, tail=narrow)
    assert "it needs more than" in "; ".join(violations(resolve(plan.spec), broken))


def explicit(streamed: bool | None, target: str = "reward.forward") -> JobSpec:
    calls = [
        {"id": f"{role}.{kind}", "role": role, "kind": kind}
        for role, kind in (("actor", "generate"), ("reward", "forward"), ("actor", "train"))
    ]
    edges = [
        {"source": "actor.generate", "target": target, "streamed": streamed},
        {"source": "reward.forward", "target": "actor.train"},
    ]
    models = {role: {"architecture": "llama-2-7b"} for role in ("actor", "reward")}
    return job_spec(None, dataflow={"calls": calls, "edges": edges}, models=models)


def test_an_edge_says_for_itself_whether_it_is_streamed() -> None:
    for given, wanted, found in ((None, False, False), (None, True, True), (False, True, False)):
        spec = explicit(given)
        search = spec.search.model_copy(update={"streaming": wanted})
        edges = resolve(spec.model_copy(update={"search": search})).dataflow.edges
        assert [bool(edge.streamed) for edge in edges if edge.distance == 0] == [found, False]
    with pytest.raises(SpecError, match=r"edges\.0\.streamed: actor\.train cannot take"):
        resolve(explicit(True, target="actor.train"))
