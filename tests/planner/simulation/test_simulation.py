"""The simulated engine: what it does with requests, and that the closed form agrees with it."""

import numpy as np
import pytest

from benchmarks.simulation import CASES, CONSTANT, MEAN, SHORT, Case
from tests.helpers.cost_model import ints
from tests.planner.simulation.comparison import compare
from tests.planner.simulation.engine import BLOCK, Requests, run_engine
from tests.planner.simulation.steps import StepCosts

LIMIT = 0.03
"""Closed form against simulation, beside twice the standard error of the latter."""
KNOWN = {
    "heavy tail, a quarter of the cache": 0.05,
    "constant, waves that just fit": 0.07,
    "prompts of several chunks": 0.07,
    "4 turns, 0.3 of the cache": 0.04,
    "8 turns, environment 5 s": 0.04,
    "8 turns, mostly away, short cache": 0.05,
}
"""Where docs/concepts/cost-model.md states a larger one."""
SURE = 0.025
"""Twice the standard error that the draws must come below."""
DRAWS = (12, 64)
"""As many as are needed: most workloads hardly differ from draw to draw."""
MANY_DRAWS = ("log-normal, half the cache", "16 per prompt, 0.3 of the cache")
"""Cases that need the more draws, which only the whole suite takes."""


def costs(case: Case | None = None) -> StepCosts:
    generation = (case or Case("constant", CONSTANT, SHORT, 8)).generation()
    return StepCosts.of(generation.closed_form(), row=0, stages=1)


def requests(*lengths: int, prompt: int = 64, **changes) -> Requests:
    number = np.arange(len(lengths))
    return Requests(np.full(len(lengths), prompt), np.array(lengths), number, **changes)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (case.name in MANY_DRAWS))
        for case in CASES
    ],
)
def test_the_closed_form_agrees_with_the_simulation(case):
    for draws in DRAWS:
        found = compare(case.generation(), draws=draws)
        sure = 2 * found.standard_error / found.simulated_seconds
        if sure <= SURE:
            break
    assert sure <= SURE, "the draws say too little"
    assert abs(found.relative_error) <= KNOWN.get(case.name, LIMIT) + sure


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_the_spread_from_draw_to_draw_is_that_of_the_simulation(share):
    found = compare(Case("", MEAN, SHORT, 48, cache_share=share).generation(), draws=40)
    assert found.closed_deviation == pytest.approx(found.simulated_deviation, rel=0.35)
    assert found.simulated_deviation > 0.05 * found.simulated_seconds


def test_one_request_takes_its_prefill_and_a_step_per_further_token():
    price = costs()
    run = run_engine(requests(101), price, cache_tokens=10_000)
    steps = sum(price.decode_seconds(1, 64 + age) for age in range(1, 101))
    assert run.prefill_seconds == pytest.approx(64 * price.prefill_token_seconds)
    assert run.seconds == pytest.approx(run.prefill_seconds + steps, rel=1e-6)
    assert run.preemptions == 0


def test_equal_requests_that_fit_by_halves_run_in_two_waves():
    """Prompt and response fill whole blocks, the cache two requests at their longest."""
    two = 2 * (64 + 64)
    run = run_engine(requests(64, 64, 64, 64), costs(), cache_tokens=two + 2 * BLOCK)
    early, late = np.sort(run.finished_seconds)[[1, 2]]
    assert early < 0.6 * run.seconds
    assert late > early
    assert run.timeline.running.max() >= 2


def test_a_request_that_finds_no_block_sends_the_last_one_back():
    tight = run_engine(requests(512, 512), costs(), cache_tokens=64 + 512 + 200)
    wide = run_engine(requests(512, 512), costs(), cache_tokens=2 * (64 + 512 + BLOCK))
    assert (tight.preemptions, wide.preemptions) == (1, 0)
    assert tight.finished_seconds[0] < tight.finished_seconds[1]
    assert tight.prefill_seconds > wide.prefill_seconds
    assert tight.seconds > 1.2 * wide.seconds


def test_responses_of_one_prompt_share_its_prefill():
    shared = Requests(np.full(4, 1000), np.full(4, 8), np.zeros(4, dtype=np.int64))
    alone = Requests(np.full(4, 1000), np.full(4, 8), np.arange(4))
    one, four = (run_engine(each, costs(), cache_tokens=10**6) for each in (shared, alone))
    assert four.prefill_seconds == pytest.approx(4 * one.prefill_seconds)


def test_long_prompts_are_prefilled_in_chunks_while_others_decode():
    price = costs()
    mixed = Requests(ints(64, 5 * price.chunk_tokens), ints(100, 2), ints(0, 1))
    run = run_engine(mixed, price, cache_tokens=10**6)
    assert list(run.timeline.running[:6]) == [0, 1, 1, 1, 1, 1]


def test_environment_time_passes_after_each_turn_and_others_decode_meanwhile():
    price = costs()
    alone = run_engine(requests(90), price, cache_tokens=10**5)
    turns = {"turns": 3, "environment_seconds": 2.0}
    waited = run_engine(requests(90, **turns), price, cache_tokens=10**5)
    assert waited.seconds == pytest.approx(alone.seconds + 6.0, rel=0.02)
    assert waited.idle_seconds == pytest.approx(4.0, rel=0.02)
    two = run_engine(requests(9000, 90, **turns), price, cache_tokens=10**5)
    assert two.finished_seconds[1] > 6.0
    assert two.idle_seconds < 6.0


def test_every_token_is_decoded_once_and_nothing_is_left():
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 400, size=40)
    run = run_engine(requests(*lengths), costs(), cache_tokens=2000)
    assert np.all(run.finished_seconds > 0)
    assert run.seconds == pytest.approx(run.finished_seconds.max())
    assert run.preemptions > 0
    busy = run.prefill_seconds + run.decode_seconds + run.idle_seconds
    assert run.seconds == pytest.approx(busy)


def test_the_longest_request_must_fit():
    with pytest.raises(ValueError, match="cache_tokens=100: the longest request has 164 tokens"):
        run_engine(requests(100), costs(), cache_tokens=100)


def test_no_requests_take_no_time():
    empty = Requests(ints(), ints(), ints())
    assert run_engine(empty, costs(), cache_tokens=1000).seconds == 0.0
