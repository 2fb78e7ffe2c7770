"""RLHF rows: the iteration of frameworks whose layout and lengths the table states."""

from dataclasses import dataclass, replace

from planner.cluster import Pool
from planner.cost.pricing import Engine, Pricing
from planner.dataflow import Call
from planner.errors import SpecError
from planner.job import Job
from planner.layout import OFFLOADS, RECOMPUTES, Layouts
from planner.resolve import resolve
from planner.spec import JobSpec
from planner.validation.generation import Server, cache_room
from planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from planner.validation.rows import RlhfRow
from planner.validation.subjects import (
    architecture_of,
    column,
    framework,
    layout_of,
    pool_of,
    product_precision,
)

PROMPT_TOKENS = 128
"""Assumed mean prompt of mathematics questions; the tables state prompt plus response only."""
RESPONSES_PER_PROMPT = 32
"""Assumed as in NeMo-RL's GRPO recipes: 64 prompts with 32 responses each."""
MICRO_BATCH = 4
"""Assumed: train_micro_batch_size and logprob_batch_size of NeMo-RL's GRPO recipes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an iteration processes, all of it stated by the row."""

    mean_tokens: float
    max_tokens: int
    num_rollouts: int
    global_batch_size: int


def predict_rlhf(
    row: RlhfRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Seconds of one iteration: generation, log-probabilities and training one after the other."""
    iteration: Estimate | CannotPredictError
    try:
        iteration = _iteration(row, assumptions)
    except CannotPredictError as reason:
        iteration = reason
    relative = CannotPredictError("relative throughput: batch and placements are not stated")
    return {"iteration_seconds": iteration, "relative_throughput": relative}


def _iteration(row: RlhfRow, assumptions: Assumptions) -> Estimate:
    sizes = _check(row)
    pool = pool_of(row, assumptions)
    job = _job(row, sizes, assumptions)
    stack = framework(row, assumptions)
    recompute = row.recompute or stack.recompute
    if row.recompute is None:
        assumptions.add(f"recompute not stated: {recompute} ({stack.name}: {stack.why})")
    layouts = replace(
        layout_of(row, stack, assumptions), offload=column(OFFLOADS.index("optimizer"))
    )
    assumptions.add("optimizer state goes to the host while the engine generates")
    engine = _engine(row)
    seconds = {
        f"{call.id}_seconds": _seconds(job, call, pool, layouts, engine, recompute)
        for call in job.dataflow.calls
        if call.model is not None
    }
    return Estimate(sum(seconds.values()), seconds)


def _check(row: RlhfRow) -> Sizes:
    """The sizes of the iteration; refuse rows that leave open what decides their time."""
    if product_precision(row) == "fp8":
        raise CannotPredictError("fp8 training is no setting of a job yet")
    if row.synchrony == "async":
        raise CannotPredictError("split of generation and training GPUs is not stated")
    if row.relative_throughput is not None and row.iteration_seconds is None:
        raise CannotPredictError("only a relative throughput is stated")
    if row.algorithm == "PPO":
        raise CannotPredictError(
            f"{row.algorithm}: sizes of critic and reward are not in the table"
        )
    if row.average_sequence_length is None or row.sequence_length is None:
        raise CannotPredictError("mean sequence length is not stated")
    if row.algorithm != "GRPO":
        raise CannotPredictError(f"algorithm {row.algorithm} is not predicted")
    if row.num_rollouts is None or row.global_batch_size is None:
        raise CannotPredictError("num_rollouts or global_batch_size is not stated")
    return Sizes(
        row.average_sequence_length, row.sequence_length, row.num_rollouts, row.global_batch_size
    )


def _job(row: RlhfRow, sizes: Sizes, assumptions: Assumptions) -> Job:
    """A GRPO job with a reward function that takes no time."""
    prompt = row.prompt_length
    if prompt is None:
        prompt = float(PROMPT_TOKENS)
        assumptions.add(f"prompt_length not stated: {PROMPT_TOKENS} tokens")
    assumptions.add(f"responses per prompt not stated: {RESPONSES_PER_PROMPT}")
    assumptions.add(f"micro_batch_size not stated: {MICRO_BATCH}")
    assumptions.add("spread of response lengths not stated: the planner's log-normal")
    architecture = architecture_of(row)
    document = {
        "name": "measured",
        "algorithm": "grpo",
        "models": {
            "actor": {"architecture": architecture},
            "reference": {"architecture": architecture},
            "reward": {"function": True},
        },
        "workload": {
            "prompts_per_iteration": max(sizes.num_rollouts // RESPONSES_PER_PROMPT, 1),
            "responses_per_prompt": min(RESPONSES_PER_PROMPT, sizes.num_rollouts),
            "prompt_length": {"mean": prompt, "max": int(prompt)},
            "response_length": {
                "mean": sizes.mean_tokens - prompt,
                "max": sizes.max_tokens - int(prompt),
            },
            "updates_per_epoch": max(sizes.num_rollouts // sizes.global_batch_size, 1),
            "kl": "loss",
        },
        "cluster": {"pools": [{"name": "measured", "gpu": row.gpu_type, "num_nodes": 1}]},
    }
    try:
        return resolve(JobSpec.model_validate(document))
    except (SpecError, ValueError) as error:
        raise CannotPredictError(f"no job: {error}") from None


def _engine(row: RlhfRow) -> Engine:
    tensor = row.generation_tensor_parallel_size or 1
    pipeline = row.generation_pipeline_parallel_size or 1
    if row.num_gpus % (tensor * pipeline):
        raise CannotPredictError("num_gpus is no multiple of the generation's parallel sizes")
    replicas = row.num_gpus // (tensor * pipeline)
    return Engine(*(column(size) for size in (tensor, pipeline, 1, replicas)))


def _seconds(
    job: Job, call: Call, pool: Pool, layouts: Layouts, engine: Engine, recompute: str
) -> float:
    """One call through the planner's own prices."""
    pricing = Pricing(job)
    micro = column(MICRO_BATCH)
    if call.kind == "train":
        code = column(RECOMPUTES.index(recompute))
        priced = pricing.train(call, pool, layouts, micro_batch_size=micro, recompute=code)
    elif call.kind == "forward":
        priced = pricing.forward(call, pool, layouts, micro_batch_size=micro)
    else:
        replicas = int(engine.data_parallel_size[0])
        room = cache_room(Server(job.models["actor"], pool, engine, pricing.workload, replicas))
        full = pricing.kv_cache_limits(call, engine)[1]
        priced = pricing.generate_from_home(
            call, pool, layouts, engine, kv_cache_bytes=full.clip(max=room)
        )
    return float(priced.seconds.total[0])
