"""Compare the closed form of a generation with the simulated engine, on lengths drawn anew."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.generation.generate_call import GenerationPhases, generation_phases
from automap.planner.cost.generation.kv_cache import (
    full_kv_cache_bytes,
    kv_bytes_per_token,
    minimum_kv_cache_bytes,
)
from automap.planner.cost.operators.profile import load_profile
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray
from automap.planner.simulation.generation import load, sampled
from automap.planner.spec import WorkloadSpec
from tests.helpers.cost_model import expected_maximum
from tests.planner.simulation.engine import Requests, run_engine
from tests.planner.simulation.steps import StepCosts


@dataclass(frozen=True, slots=True)
class Generation:
    """A generate call in one layout and with one size of the cache."""

    model: Model
    call: Call
    workload: WorkloadSpec
    pool: Pool
    engine: GenerationLayouts
    """The layout that it generates in, as columns of one row."""
    cache_share: float = 1.0
    """Size of the cache as a share of that with which hardly a sequence waits."""

    @property
    def kv_cache_bytes(self) -> IntArray:
        """Bytes of the cache per GPU, as a column of one row."""
        full = full_kv_cache_bytes(self.model, self.call, self.workload, self.engine)
        least = minimum_kv_cache_bytes(self.model, self.workload, self.engine)
        return np.maximum((full * self.cache_share).astype(np.int64), least)

    def closed_form(self) -> GenerationPhases:
        """The generation as a plan prices it, from the distribution of lengths."""
        return generation_phases(
            self.model,
            self.call,
            self.workload,
            self.pool,
            load_profile(self.pool.gpu),
            self.engine,
            kv_cache_bytes=self.kv_cache_bytes,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of a generate call, and their standard deviation over lengths drawn anew."""

    closed_seconds: float
    closed_deviation: float
    simulated_seconds: float
    simulated_deviation: float
    standard_error: float
    """Standard error of simulated_seconds."""
    preemptions: float
    """Mean number of preemptions per replica."""

    @property
    def relative_error(self) -> float:
        """Closed form ÷ simulation − 1."""
        return self.closed_seconds / self.simulated_seconds - 1.0


def compare(generation: Generation, *, draws: int, seed: int = 0) -> Comparison:
    """Compare the closed form with `draws` simulations; the slowest replica of each counts."""
    phases = generation.closed_form()
    rng = np.random.default_rng(seed)
    seconds, chance, preemptions = np.zeros(draws), np.zeros((draws, 3)), 0.0
    for draw in range(draws):
        seconds[draw], chance[draw], evicted = _draw(generation, phases, rng)
        preemptions += evicted / draws
    expected, error = _expected(seconds, chance, generation)
    return Comparison(
        closed_seconds=float((phases.prefill.total + phases.decode.total)[0]),
        closed_deviation=float(phases.deviation_seconds[0]),
        simulated_seconds=expected,
        simulated_deviation=float(seconds.std(ddof=1)) if draws > 1 else 0.0,
        standard_error=error,
        preemptions=preemptions,
    )


def _draw(
    generation: Generation, phases: GenerationPhases, rng: np.random.Generator
) -> tuple[float, FloatArray, float]:
    """(seconds, longest, mean and load of the responses, preemptions per replica) of one draw."""
    workload, engine = generation.workload, generation.engine
    stages = int(engine.pipeline_parallel_size[0])
    precision = workload.rollout_cache_precision
    per_token = kv_bytes_per_token(generation.model, engine, tokens=1000, precision=precision)
    costs = StepCosts.of(phases, row=0, stages=stages)
    replicas = int(engine.data_parallel_size[0])
    each = generation.call.num_sequences // replicas
    prompt = np.arange(each) // workload.responses_per_prompt
    ends, responses, loads, preemptions = [], [], [], 0
    for _ in range(replicas):
        requests = Requests(
            prompt_tokens=sampled(workload.prompt_length, int(prompt[-1]) + 1, rng)[prompt],
            response_tokens=sampled(workload.response_length, each, rng),
            prompt=prompt,
            turns=workload.turns,
            environment_seconds=workload.environment_seconds_per_turn,
        )
        room = int(generation.kv_cache_bytes[0] // per_token[0])
        run = run_engine(requests, costs, cache_tokens=room)
        ends.append(run.seconds)
        responses.append(requests.response_tokens)
        loads.append(load(requests.prompt_tokens, requests.response_tokens))
        preemptions += run.preemptions
    drawn = np.concatenate(responses)
    chance = np.array([drawn.max(), drawn.mean(), np.concatenate(loads).mean()])
    return max(ends), chance, preemptions / replicas


def _expected(
    seconds: FloatArray, chance: FloatArray, generation: Generation
) -> tuple[float, float]:
    """(mean seconds, standard error of the mean) over draws, with control variates.

    Longest, mean and load of the drawn lengths have known expectations. What they explain of the
    seconds is taken out, so that fewer draws suffice.
    """
    workload, number = generation.workload, generation.call.num_sequences
    lengths = workload.response_length
    points, weights = lengths.distribution()
    mean_load = float(load(workload.prompt_length.mean_tokens, points) @ weights)
    known = np.array([expected_maximum(lengths, number), lengths.mean_tokens, mean_load])
    off = (chance - known) / known
    varies = off.std(axis=0) > 1e-3
    if varies.sum() + 2 > len(seconds):
        varies[:] = False
    columns = np.column_stack([np.ones(len(seconds)), off[:, varies]])
    fitted, *_ = np.linalg.lstsq(columns, seconds, rcond=None)
    left = seconds - columns @ fitted
    freedom = max(len(seconds) - columns.shape[1], 1)
    return float(fitted[0]), float(np.sqrt(left @ left / freedom / len(seconds)))
