"""Predict generation rows: time per output token, time to first token, output tokens per second."""

from dataclasses import dataclass, replace

import numpy as np

from automap.planner.catalogue.hardware import Pool
from automap.planner.catalogue.weight_formats import BLOCK_FORMATS
from automap.planner.cost import constants, memory
from automap.planner.cost.estimates import BytesColumns
from automap.planner.cost.generation import generate_call
from automap.planner.cost.generation.decode import EngineShapes
from automap.planner.cost.generation.kv_cache import full_kv_cache_bytes, minimum_kv_cache_bytes
from automap.planner.cost.generation.mixed_step import mixed_step_seconds
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.rollout_engines import ENGINES
from automap.planner.dataflow.graph import Call
from automap.planner.job.job import Model
from automap.planner.layout import GenerationLayouts
from automap.planner.spec import WorkloadSpec
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rows import GenerationRow
from automap.planner.validation.subjects import (
    architecture_of,
    check_priceable,
    column,
    constant,
    framework,
    pool_of,
    product_precision,
)

FEW_REQUESTS = 4
"""Requests in flight up to which time to first token is a prefill or two and little queueing."""
TOGETHER = 2
"""Requests of a service that end, and whose successors are prefilled, in one and the same step.
Fitted: interruptions of a decoding request grow as requests in flight less two to three."""
WITH_PROMPTS = "steps_with_prompts_seconds"
HOST = "overhead_seconds"
"""Parts of a mean decode step: of steps that take in prompts, or wait for them; of the host."""
DRAWN_LENGTHS = ((1024, 1024), (1024, 8192), (8192, 1024))
"""(prompt, response) tokens of InferenceX's workloads. Its client draws both lengths of a request
between 80 and 100 % of these (random-range-ratio 0.8), so requests do not stay in step."""


@dataclass(frozen=True, slots=True)
class Server:
    """An inference engine on its GPUs, with the requests of a row."""

    model: Model
    pool: Pool
    engine: GenerationLayouts
    workload: WorkloadSpec
    replicas: int

    def call(self, num_sequences: int) -> Call:
        """Generate call of `num_sequences` sequences that all start together."""
        return Call(
            id="actor.generate",
            role="actor",
            model="actor",
            kind="generate",
            num_sequences=num_sequences,
        )

    def full_cache(self, num_sequences: int) -> int:
        """Bytes of cache per GPU with which `num_sequences` sequences run at once."""
        call = self.call(num_sequences)
        full = full_kv_cache_bytes(self.model, call, self.workload, self.engine)
        return int(full[0])

    def phases(self, num_sequences: int, cache_bytes: int) -> generate_call.GenerationPhases:
        """The planner's prefill and decode of `num_sequences` sequences."""
        return generate_call.generation_phases(
            self.model,
            self.call(num_sequences),
            self.workload.model_copy(update={"prompts_per_iteration": num_sequences}),
            self.pool,
            load_profile(self.pool.gpu),
            self.engine,
            kv_cache_bytes=column(cache_bytes),
        )


def predict_generation(
    row: GenerationRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Predict the measured columns of a row, each as its table defines it.

    A decode step is the mean over steps with and without prompts; see `interruptions`.

    Raises:
        CannotPredictError: the row leaves out what decides its time, or does not fit.
    """
    server = _server(row, assumptions)
    concurrency = row.concurrency
    room = cache_room(server)
    if concurrency is None and row.load != "max_load":
        raise CannotPredictError("concurrency is not stated")
    fits = _sequences_that_fit(server, room)
    if concurrency is None:
        assumptions.add("concurrency not stated: as many requests as the cache holds")
    elif concurrency > fits:
        assumptions.add("fewer requests than stated fit the cache: the rest waits")
    running = fits if concurrency is None else min(concurrency, fits)
    phases = server.phases(running, server.full_cache(running))
    one = server.phases(server.replicas, server.full_cache(server.replicas))
    step = _decode_step(server, phases, one, running)
    prefill = _first_token(server, one, running)
    total = float((phases.prefill.total + phases.decode.total)[0])
    tokens = running * server.workload.response_length.max_tokens
    queued = CannotPredictError(
        "time to first token includes queueing (more than 4 requests in flight)"
    )
    few = row.load == "static" or running <= FEW_REQUESTS
    return {
        "decode_step_seconds": step,
        "prefill_seconds": prefill if few else queued,
        "output_tokens_per_second": Estimate(tokens / total),
    }


def _decode_step(
    server: Server,
    phases: generate_call.GenerationPhases,
    one: generate_call.GenerationPhases,
    running: int,
) -> Estimate:
    tokens = server.workload.response_length.max_tokens
    joining = interruptions(server, running / server.replicas) / tokens
    if ENGINES[server.workload.rollout_engine].prefill_first:
        # Prompts that came together pass in full chunks, one that comes alone in its own.
        passed = phases if stays_in_step(server.workload) else one
        each = float(passed.prefill.total[0] / passed.running.sequences[0])
        parts = _parts(phases.decode, 1.0 / tokens) | {WITH_PROMPTS: joining * each}
    else:
        parts = _shared_steps(server, phases, running / server.replicas, joining)
    return Estimate(sum(parts.values()), parts)


def _shared_steps(
    server: Server, phases: generate_call.GenerationPhases, running: float, joining: float
) -> dict[str, float]:
    """Parts of the mean step where prompts, `joining` per step, share steps with what decodes.

    Of the steps a share min(1, joining) carries max(1, joining) prompts, or as many as the chunk
    holds; with more to take in every step is full.
    """
    tokens = server.workload.response_length.max_tokens
    prompt = server.workload.prompt_length.max_tokens
    parts = _parts(phases.decode, 1.0 / tokens)
    if not joining:
        return parts | {WITH_PROMPTS: 0.0}
    carried = min(max(joining, 1.0), constants.PREFILL_CHUNK_TOKENS / prompt)
    share = min(joining / carried, 1.0)
    engine = server.engine
    mixed = mixed_step_seconds(
        generate_call.kernel_context(
            server.model, server.workload, server.pool, load_profile(server.pool.gpu)
        ),
        EngineShapes(
            engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.expert_parallel_size
        ),
        sequences=running / engine.pipeline_parallel_size,
        cached_tokens=prompt + tokens / 2.0,
        prompts=np.array([carried]),
    )
    alone = {name: (1.0 - share) * parts[name] for name in parts if name != HOST}
    return alone | {HOST: parts[HOST], WITH_PROMPTS: share * float(mixed[0])}


def interruptions(server: Server, running: float) -> float:
    """Number of prompts taken in while a request decodes, with `running` on its replica.

    Each request is replaced when it ends, so each of the others ends once meanwhile, but for those
    prefilled in the same step. Where waiting prompts go first and all requests are equally long,
    they stay in step: the first of a wave waits for all chunks of prompts after its own, the last
    for none.
    """
    if stays_in_step(server.workload):
        return max(running - _prompts_per_chunk(server), 0.0) / 2.0
    return max(running - TOGETHER, 0.0)


def stays_in_step(workload: WorkloadSpec) -> bool:
    """Whether requests that started together end together: waiting prompts first, equal lengths."""
    lengths = (workload.prompt_length.max_tokens, workload.response_length.max_tokens)
    return ENGINES[workload.rollout_engine].prefill_first and lengths not in DRAWN_LENGTHS


def _prompts_per_chunk(server: Server) -> int:
    prompt = server.workload.prompt_length.max_tokens
    return max(constants.PREFILL_CHUNK_TOKENS // prompt, 1)


def _first_token(server: Server, one: generate_call.GenerationPhases, running: int) -> Estimate:
    """Time to first token: a prompt's own prefill and those that it waits for.

    Where waiting prompts go first, all that run on a replica came at once: in one chunk all wait
    for the last, over several chunks half of them on average. Otherwise `TOGETHER` came within
    one step and share a chunk if they fit: half of the other one is waited for.
    """
    together, chunk = max(running / server.replicas, 1.0), float(_prompts_per_chunk(server))
    if ENGINES[server.workload.rollout_engine].prefill_first:
        prompts = (together + min(together, chunk)) / 2.0
    else:
        prompts = (1.0 + min(together, chunk, TOGETHER)) / 2.0
    parts = _parts(one.prefill, prompts)
    return Estimate(sum(parts.values()), parts)


def _parts(seconds: object, scale: float) -> dict[str, float]:
    names = ("compute", "communication", "bubble", "overhead")
    return {f"{name}_seconds": scale * float(getattr(seconds, name)[0]) for name in names}


def _server(row: GenerationRow, assumptions: Assumptions) -> Server:
    check_priceable(row)
    precision = weight_precision(row, assumptions)
    framework(row, assumptions)
    if row.prompt_length is None or row.response_length is None:
        raise CannotPredictError("prompt_length or response_length is not stated")
    tensor, pipeline = row.tensor_parallel_size or 1, row.pipeline_parallel_size or 1
    replicas = row.data_parallel_size or row.num_gpus // (tensor * pipeline)
    if tensor * pipeline * replicas != row.num_gpus:
        raise CannotPredictError("num_gpus is no multiple of the stated parallel sizes")
    if row.concurrency is not None and row.concurrency < replicas:
        raise CannotPredictError("fewer requests in flight than replicas")
    engine = GenerationLayouts(
        *(column(size) for size in (tensor, pipeline, row.expert_parallel_size or 1, replicas))
    )
    workload = WorkloadSpec.model_validate(
        {
            "prompts_per_iteration": row.concurrency or 1,
            "prompt_length": constant(row.prompt_length),
            "response_length": constant(row.response_length),
            "precision": "bf16" if precision in ("fp8", *BLOCK_FORMATS) else precision,
            "rollout_precision": precision,
            "rollout_engine": _rollout_engine(row, assumptions),
        }
    )
    model, pool = (
        Model("actor", architecture_of(row), False, False, None),
        pool_of(row, assumptions),
    )
    if ENGINES[workload.rollout_engine].prefill_first and not stays_in_step(workload):
        assumptions.add("lengths are drawn as InferenceX does: requests are not in step")
    if _has_fp8_cache(row, pool, workload, assumptions):
        workload = workload.model_copy(update={"rollout_cache_precision": "fp8"})
    return Server(model, pool, engine, workload, replicas)


def weight_precision(row: GenerationRow, assumptions: Assumptions) -> str:
    """Format of the row's weights, as the cost model names it.

    Raises:
        CannotPredictError: it is not stated, or the cost model does not know it.
    """
    if row.precision != "fp4":
        known = row.precision if row.precision in BLOCK_FORMATS else None
        return known or product_precision(row)
    if row.quantization == "mxfp4" or "gpt-oss" in row.model.lower():
        assumptions.add("fp4 of gpt-oss is read as the mxfp4 of its experts")
        return "mxfp4"
    assumptions.add("fp4 is read as nvfp4")
    return "nvfp4"


def _rollout_engine(row: GenerationRow, assumptions: Assumptions) -> str:
    if row.engine in ENGINES:
        return row.engine
    assumptions.add(f"engine {row.engine or 'not stated'}: priced as vllm")
    return "vllm"


def _has_fp8_cache(
    row: GenerationRow, pool: Pool, workload: WorkloadSpec, assumptions: Assumptions
) -> bool:
    """Whether the cache is in fp8: as stated, or as the engine does for fp8 weights on this GPU.

    Checkpoints in nvfp4 state scales for a cache in fp8 as those in fp8 do; others keep 16 bits.
    """
    if "fp8 key-value cache" in row.note.lower():
        return True
    generations = ENGINES[workload.rollout_engine].fp8_cache_generations
    low = workload.rollout_precision
    if low not in ("fp8", "nvfp4") or pool.gpu.generation not in generations:
        return False
    assumptions.add(
        f"key-value cache in fp8, as {workload.rollout_engine} has it for {low} weights"
    )
    return True


def may_draft(row: GenerationRow) -> bool:
    """Whether the model ships a module to draft tokens with; tables do not say if it was used."""
    try:
        return "multi-token prediction" in architecture_of(row).approximation
    except CannotPredictError:
        return False


def cache_room(server: Server) -> int:
    """Cache bytes per GPU beside weights and what the engine holds.

    Raises:
        CannotPredictError: not one sequence fits.
    """
    engine = server.engine
    weights: BytesColumns
    weights = memory.shadow_resident_bytes(server.model, server.workload, engine.layouts())
    few = server.call(server.replicas)
    least = minimum_kv_cache_bytes(server.model, server.workload, engine)
    estimates = generate_call.price_generate(
        server.model,
        few,
        server.workload,
        server.pool,
        load_profile(server.pool.gpu),
        engine,
        kv_cache_bytes=least,
    )
    beside = replace(estimates.transient, kv_cache=np.zeros_like(least))
    room = memory.usable_bytes(server.pool) - int((weights.total + beside.total)[0])
    if room < int(least[0]):
        raise CannotPredictError("the model and one request do not fit, by the cost model")
    return room


def _sequences_that_fit(server: Server, room: int) -> int:
    """Requests over all replicas whose whole cache fits; each replica has the same number."""
    tokens_bytes = server.full_cache(1000 * server.replicas) / 1000
    return max(int(room / tokens_bytes), 1) * server.replicas
