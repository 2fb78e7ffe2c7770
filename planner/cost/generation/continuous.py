"""Seconds in which engines that never drain finish the responses of a batch.

Little's law: R replicas that run n responses each, of E[L] tokens, finish R·n / (E[L]·τ(n, c)) a
second, τ being the seconds of a decode step and c the tokens that a response has cached. A response
that is looked at in flight is more often a long one: c = P + E[L²] / 2 E[L], not P + E[L] / 2. How
many may be in flight is bounded by the cache, by the sequences that an engine takes, and by the
staleness (`steady_state`). No batch ends, so no tail is waited for, except where no response may be
older than the staleness when it is trained on. One that began right after new weights came has
η − lag + 1 batches to end, one that began right before the next has η − lag: with half a batch
between them for the mean, these last at least as long as the longest response is in flight.

Sources: AReaL (arXiv 2505.24298) for the bound and the cache that a weight update drops, PipelineRL
(arXiv 2509.19128) for the cache that is kept. No number is fitted.
"""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.cost import constants
from automap.planner.cost.estimates import CallEstimates, SecondsColumns, summed
from automap.planner.cost.generation.decode import CACHE_POINTS, EngineShapes, step_tables
from automap.planner.cost.generation.decoding import Steps
from automap.planner.cost.generation.generate_call import (
    engine_slots,
    kernel_context,
    prefill_columns,
    transient_bytes,
)
from automap.planner.cost.generation.kv_cache import (
    CACHE_SIGMAS,
    kv_bytes_per_token,
    prompt_tokens,
)
from automap.planner.cost.generation.prefill import prefill_seconds
from automap.planner.cost.generation.steady_state import (
    FollowedFlow,
    Lengths,
    followed_flow,
    of_longest,
)
from automap.planner.cost.generation.survival import variation
from automap.planner.cost.operators.profile import Profile
from automap.planner.cost.rows import distinct_rows
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Job, Model
from automap.planner.layout import FloatArray, GenerationLayouts, IntArray
from automap.planner.spec import WorkloadSpec

MEAN_BEGIN = 0.5
"""Mean share of a batch that is left to fill when a response begins."""
ROUNDS = 4
"""Iterations in which environment seconds and the seconds of a step are made to agree."""


@dataclass(frozen=True, slots=True)
class Admission:
    """How many responses may be in flight, over those that an iteration generates.

    Between two weight syncs the number falls from `most` to `least`, as a batch fills.
    """

    most: float
    least: float
    group: int
    """Responses of a prompt: they count as in flight until the last of them ends."""
    keeps_cache: bool
    """Whether a weight sync leaves the cache of what is in flight as it is."""
    batches: int
    """Batches that a response which begins right before new weights come may take to end: the
    staleness without what training may hold."""
    waits: bool
    """Whether batches wait for a response that would be too old for the next."""

    @property
    def drains(self) -> bool:
        """True where all that is admitted is waited for before more is: batch by batch."""
        return self.batches == 0

    @staticmethod
    def of(job: Job, call: Call) -> "Admission | None":
        """The admission of a job's generation; None without continuous rollouts.

        Filtered responses are generated, but leave at once: only accepted ones fill a batch.
        """
        search, workload, rules = job.spec.search, job.spec.workload, job.target.continuous
        if not search.continuous_rollouts:
            return None
        accepted = min(workload.num_sequences / call.num_sequences, 1.0)
        batches = search.staleness - job.training_slack
        return Admission(
            most=accepted * (batches + 1),
            least=accepted * batches,
            group=workload.responses_per_prompt,
            keeps_cache=bool(search.keep_cache_at_sync),
            batches=batches,
            waits=rules is None or rules.waits_for_oldest,
        )

    def with_one_more(self) -> "Admission":
        """The admission with one more batch of slack."""
        step = self.most - self.least
        return replace(
            self, most=self.most + step, least=self.least + step, batches=self.batches + 1
        )


@dataclass(frozen=True, slots=True)
class ContinuousGeneration:
    """The steady state of a generation, one row per candidate; numbers are of one replica."""

    prefill: SecondsColumns
    """Seconds of the prompts of a batch, and of caches that are computed again."""
    decode: SecondsColumns
    """Seconds of the decode steps in which a batch finishes; bubble: those for which a batch waits
    for its longest response."""
    slots: FloatArray
    """Responses that the engine runs at once at most: its cache and its own limit hold so many."""
    running: FloatArray
    """Mean of those that it does run."""
    needed: FloatArray
    """Responses in flight that keep it full: it runs `slots` of them, the others wait for the rest
    of their group, or are with their environment."""
    flow_seconds: FloatArray
    """Seconds of a batch if no response were too long for the staleness."""
    flight_seconds: FloatArray
    """Seconds for which the longest response of a batch is in flight."""
    recomputed_tokens: FloatArray
    """Tokens that a batch's weight sync, and returns from the environment, prefill again."""
    source: IntArray
    most_at_once: IntArray
    deviation_seconds: FloatArray
    """Standard deviation of a batch's seconds when its lengths are drawn anew."""

    @property
    def seconds(self) -> SecondsColumns:
        """Prefill and decode together."""
        return summed(self.prefill, self.decode)


def flow_of(call: Call, workload: WorkloadSpec, admission: Admission) -> FollowedFlow:
    """The flow of a call's responses under an admission."""
    points, mass = workload.response_length.distribution()
    return followed_flow(
        tuple(points.tolist()),
        tuple(mass.tolist()),
        group=admission.group,
        most=admission.most,
        least=admission.least,
    )


def cached_tokens(call: Call, workload: WorkloadSpec, admission: Admission) -> float:
    """Mean tokens that a response in flight has cached: P + E[L²] / 2 E[L]."""
    return prompt_tokens(workload) + flow_of(call, workload, admission).lengths.age_tokens


def cached_variance(workload: WorkloadSpec) -> float:
    """Variance of the tokens that a response in flight has cached.

    E[L³] / 3 E[L] − (E[L²] / 2 E[L])², as the age of what is seen at a random time has the density
    P(L > a) / E[L].
    """
    points, mass = workload.response_length.distribution()
    first, second, third = (float(points**k @ mass) for k in (1, 2, 3))
    return max(third / (3.0 * first) - (second / (2.0 * first)) ** 2, 0.0)


def slots_of_cache(tokens: FloatArray, *, mean: float, variance: float) -> FloatArray:
    """Responses [row] that a cache of so many tokens holds with two deviations to spare.

    n·c + 2·√(n·v) = tokens: more would be sent back to the queue, and prefilled again, all the
    time. At least one.
    """
    spare = CACHE_SIGMAS * np.sqrt(variance)
    root = (np.sqrt(spare**2 + 4.0 * mean * np.maximum(tokens, 0.0)) - spare) / (2.0 * mean)
    return np.asarray(np.maximum(np.floor(root**2 + 1e-9), 1.0), dtype=np.float64)


def full_cache_bytes(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    admission: Admission,
    generation_layouts: GenerationLayouts,
) -> IntArray:
    """Cache bytes per GPU [candidate] that hold all that may be in flight."""
    mean = cached_tokens(call, workload, admission)
    number = np.ceil(admission.most * call.num_sequences / generation_layouts.data_parallel_size)
    tokens = number * mean + CACHE_SIGMAS * np.sqrt(number * cached_variance(workload))
    return np.asarray(
        np.ceil(tokens).astype(np.int64)
        * _bytes_per_token(model, workload, generation_layouts, mean)
    )


def _bytes_per_token(
    model: Model, workload: WorkloadSpec, layouts: GenerationLayouts, tokens: float
) -> IntArray:
    return kv_bytes_per_token(
        model, layouts, tokens=tokens, precision=workload.rollout_cache_precision
    )


def estimates_of(
    found: ContinuousGeneration,
    model: Model,
    pool: Pool,
    generation_layouts: GenerationLayouts,
    *,
    kv_cache_bytes: IntArray,
) -> CallEstimates:
    """A steady state as the price of a call, with what the engine holds beside its weights."""
    transient = transient_bytes(
        model,
        generation_layouts,
        kv_cache_bytes=kv_cache_bytes,
        running_batch=found.most_at_once,
        # A CPU captures no graphs.
        graph_bytes=0 if pool.gpu.is_core else constants.ENGINE_GRAPH_BYTES,
    )
    return CallEstimates(found.seconds, transient, found.source)


def continuous_generation(
    model: Model,
    call: Call,
    workload: WorkloadSpec,
    pool: Pool,
    profile: Profile,
    generation_layouts: GenerationLayouts,
    admission: Admission,
    *,
    kv_cache_bytes: IntArray,
    max_sequences: int | None = None,
) -> ContinuousGeneration:
    """The steady state of an engine per candidate; replicas share what is in flight evenly.

    The admission is of one that does not drain. Pauses for weight syncs are no part of it: a sync
    occupies the same GPUs as a step of its own.
    """
    context = kernel_context(model, workload, pool, profile, max_sequences=max_sequences)
    columns = (
        generation_layouts.tensor_parallel_size,
        generation_layouts.pipeline_parallel_size,
        generation_layouts.expert_parallel_size,
    )
    first, shape = distinct_rows(*columns)
    shapes = EngineShapes(*(column[first] for column in columns))
    cached = cached_tokens(call, workload, admission)
    batch = call.num_sequences / generation_layouts.data_parallel_size
    cache = kv_cache_bytes / _bytes_per_token(model, workload, generation_layouts, cached)
    slots = slots_of_cache(cache, mean=cached, variance=cached_variance(workload))
    limit = engine_slots(context.engine, generation_layouts)
    slots = slots if limit is None else np.minimum(slots, limit)
    most = np.ceil(admission.most * batch).astype(np.int64)
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    tables = step_tables(
        context,
        shapes,
        largest_batch=int(most.max(initial=1)),
        cache_lengths=np.linspace(context.lengths.mean_tokens, longest, CACHE_POINTS),
    )
    steps = Steps(tables, context.engine, shape, generation_layouts.pipeline_parallel_size)
    found = _steady(steps, flow_of(call, workload, admission), workload, slots, batch)
    prefill = prefill_seconds(
        context, call, workload, shapes, shape, np.ceil(batch).astype(np.int64)
    )
    again = _recomputed(found, workload, admission, cache, batch)
    seconds = prefill_columns(prefill.seconds, 1.0 + again / prefill.tokens)
    points, mass = workload.response_length.distribution()
    spread = variation(points, mass) / np.sqrt(call.num_sequences)
    flow = seconds.total + found.decode.total
    # Prefills between its steps hold up a response as well.
    flight = float(points @ of_longest(mass, call.num_sequences)) * flow / found.steps
    flight = flight + workload.turns * workload.environment_seconds_per_turn
    allowed = admission.batches + MEAN_BEGIN if admission.waits else np.inf
    waiting = np.maximum(flight / allowed - flow, 0.0)
    return ContinuousGeneration(
        prefill=seconds,
        decode=replace(found.decode, bubble=waiting),
        slots=slots,
        running=found.running,
        needed=slots * found.lengths.longest_of_group / found.decoding_share,
        flow_seconds=flow,
        flight_seconds=flight,
        recomputed_tokens=again,
        source=np.maximum(tables.source[shape], prefill.source),
        most_at_once=np.minimum(slots.astype(np.int64), np.maximum(most, 1)),
        deviation_seconds=spread * flow,
    )


@dataclass(frozen=True, slots=True)
class _Steady:
    """Decoding in the steady state [candidate], a replica's."""

    lengths: Lengths
    decode: SecondsColumns
    steps: FloatArray
    """Decode steps of the engine in which a batch finishes."""
    running: FloatArray
    in_flight: FloatArray
    """Mean of the responses that run or are with their environment."""
    cached: FloatArray
    """Mean tokens that each of them has cached."""
    decoding_share: FloatArray
    """Share of its time in which a response in flight is decoded: the rest is its environment's."""


def _steady(
    steps: Steps, known: FollowedFlow, workload: WorkloadSpec, slots: FloatArray, batch: FloatArray
) -> _Steady:
    """Bring the flow, how many run, and the seconds of a step into agreement.

    A response of L tokens is in flight for L steps and its environment's seconds E, so only a share
    φ = E[L]·τ / (E[L]·τ + E) of what is in flight runs, and engines of n slots want n / φ of them.
    """
    mean = known.lengths.mean_tokens
    away = workload.turns * workload.environment_seconds_per_turn
    prompt = prompt_tokens(workload)
    share = np.ones(len(slots))
    for _ in range(ROUNDS if away else 1):
        flow = known.at(slots / batch / share)
        flying = flow.in_flight * batch[:, None]
        running = flying * share[:, None]
        parts = steps.of(running, prompt + flow.age_tokens)
        step = sum(parts)
        cell_share = mean * step / (mean * step + away)
        total = flow.steps.sum(axis=1)
        share = (flow.steps * cell_share).sum(axis=1) / total
    compute, moved, overhead = (((flow.steps / cell_share) * part).sum(axis=1) for part in parts)
    zero = np.zeros(len(slots))
    weight = flow.steps / total[:, None]
    return _Steady(
        lengths=known.lengths,
        decode=SecondsColumns(compute, moved, zero, zero, zero, overhead, zero),
        steps=(flow.steps / cell_share).sum(axis=1),
        running=(weight * running).sum(axis=1),
        in_flight=(weight * flying).sum(axis=1),
        cached=prompt + (weight * flow.age_tokens).sum(axis=1),
        decoding_share=share,
    )


def _recomputed(
    found: _Steady,
    workload: WorkloadSpec,
    admission: Admission,
    cache: FloatArray,
    batch: FloatArray,
) -> FloatArray:
    """Tokens [candidate] that a replica prefills again for each batch.

    A sync that drops the cache costs all that is in flight once. A turn that comes back from its
    environment finds its cache gone where others needed the room.
    """
    again = np.zeros(len(cache)) if admission.keeps_cache else found.in_flight * found.cached
    away = (found.in_flight - found.running) * found.cached
    room = cache - found.running * found.cached
    lost = np.clip(1.0 - room / np.maximum(away, 1e-9), 0.0, 1.0)
    at_return = prompt_tokens(workload) + workload.response_length.mean_tokens / 2
    return np.asarray(
        again + batch * (workload.turns - 1) * at_return * np.where(away > 0, lost, 0)
    )
