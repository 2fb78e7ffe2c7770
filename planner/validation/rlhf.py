"""RLHF rows: the iteration of frameworks whose layout and lengths the table states."""

from dataclasses import dataclass, replace

import numpy as np

from planner.cluster import Pool
from planner.cost.pricing import Engine, Pricing
from planner.dataflow import Call
from planner.errors import SpecError
from planner.job import Job
from planner.layout import OFFLOADS, RECOMPUTES, IntArray, Layouts
from planner.resolve import resolve
from planner.spec import JobSpec
from planner.validation.frameworks import Framework
from planner.validation.generation import Server, cache_room, layouts_of
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
    """Seconds of one iteration: generation, log-probabilities and training."""
    iteration: Estimate | CannotPredictError
    try:
        iteration = _iteration(row, assumptions)
    except CannotPredictError as reason:
        iteration = reason
    relative = CannotPredictError("relative throughput: batch and placements are not stated")
    return {"iteration_seconds": iteration, "relative_throughput": relative}


def _iteration(row: RlhfRow, assumptions: Assumptions) -> Estimate:
    sizes = _check(row)
    # On one half of the GPUs each where generation runs beside training.
    apart = row.synchrony == "async"
    gpus = row.num_gpus // 2 if apart else row.num_gpus
    trainer = row.model_copy(
        update={"num_gpus": gpus, "data_parallel_size": None if apart else row.data_parallel_size}
    )
    defaults = framework(row, assumptions)
    recompute = row.recompute or defaults.recompute
    if row.recompute is None:
        assumptions.add(f"recompute not stated: {recompute} {defaults.reason}")
    run = Run(
        pricing=Pricing(_job(row, sizes, defaults, assumptions)),
        pool=pool_of(row, assumptions),
        layouts=layout_of(trainer, defaults, assumptions),
        engine=_engine(row, gpus),
        recompute=recompute,
    )
    if apart:
        assumptions.add("split of generation and training GPUs not stated: half each")
        return _apart(run)
    assumptions.add("optimizer state goes to the host while the engine generates")
    away = replace(run.layouts, offload=column(OFFLOADS.index("optimizer")))
    return _together(replace(run, layouts=away))


@dataclass(frozen=True, slots=True)
class Run:
    """A GRPO job as the row lays it out."""

    pricing: Pricing
    pool: Pool
    layouts: Layouts
    engine: Engine
    recompute: str

    def call(self, kind: str, role: str) -> Call:
        """The job's only call of that kind and role."""
        calls = self.pricing.job.dataflow.calls
        return next(call for call in calls if (call.kind, call.role) == (kind, role))

    def kv_cache_bytes(self, call: Call) -> IntArray:
        """What no sequence waits for, or all that fits beside the engine's weights."""
        server = Server(
            self.pricing.job.models["actor"],
            self.pool,
            self.engine,
            self.pricing.workload,
            int(self.engine.data_parallel_size[0]),
        )
        full = self.pricing.kv_cache_limits(call, self.engine)[1]
        return np.minimum(full, cache_room(server))

    def learning_seconds(self) -> dict[str, float]:
        """Both forward passes and the optimizer steps, through the planner's own prices."""
        micro, code = column(MICRO_BATCH), column(RECOMPUTES.index(self.recompute))
        parts = {}
        for role in ("actor", "reference"):
            priced = self.pricing.forward(
                self.call("forward", role), self.pool, self.layouts, micro_batch_size=micro
            )
            parts[f"{role}.forward_seconds"] = float(priced.seconds.total[0])
        trained = self.pricing.train(
            self.call("train", "actor"),
            self.pool,
            self.layouts,
            micro_batch_size=micro,
            recompute=code,
        )
        return parts | {"actor.train_seconds": float(trained.seconds.total[0])}


def _together(run: Run) -> Estimate:
    """One after the other on the same GPUs."""
    call = run.call("generate", "actor")
    generated = run.pricing.generate_from_home(
        call, run.pool, run.layouts, run.engine, kv_cache_bytes=run.kv_cache_bytes(call)
    )
    parts = {"actor.generate_seconds": float(generated.seconds.total[0])}
    parts |= run.learning_seconds()
    return Estimate(sum(parts.values()), parts)


def _apart(run: Run) -> Estimate:
    """Generation beside training; the slower of the two, and the weight sync between them."""
    call = run.call("generate", "actor")
    generated = run.pricing.generate(
        call, run.pool, run.engine, kv_cache_bytes=run.kv_cache_bytes(call)
    )
    generation = float(generated.seconds.total[0])
    learning = run.learning_seconds()
    sync = max(
        float(run.pricing.send_seconds("actor", run.pool, run.layouts)[0]),
        float(run.pricing.receive_seconds("actor", run.pool, layouts_of(run.engine))[0]),
    )
    parts = {"actor.generate_seconds": generation, **learning, "weight_sync_seconds": sync}
    return Estimate(max(generation, sum(learning.values())) + sync, parts)


def _check(row: RlhfRow) -> Sizes:
    """The sizes of the iteration; refuse rows that leave open what decides their time."""
    if product_precision(row) == "fp8":
        raise CannotPredictError("fp8 training is no setting of a job yet")
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


def _job(row: RlhfRow, sizes: Sizes, defaults: Framework, assumptions: Assumptions) -> Job:
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
            "training_stack": defaults.training_stack,
        },
        "cluster": {"pools": [{"name": "measured", "gpu": row.gpu_type, "num_nodes": 2}]},
    }
    try:
        return resolve(JobSpec.model_validate(document))
    except (SpecError, ValueError) as error:
        raise CannotPredictError(f"no job: {error}") from None


def _engine(row: RlhfRow, gpus: int) -> Engine:
    tensor = row.generation_tensor_parallel_size or 1
    pipeline = row.generation_pipeline_parallel_size or 1
    if gpus == 0 or gpus % (tensor * pipeline):
        raise CannotPredictError("GPUs are no multiple of the generation's parallel sizes")
    replicas = gpus // (tensor * pipeline)
    return Engine(*(column(size) for size in (tensor, pipeline, 1, replicas)))
