"""Predict RLHF rows: iterations of frameworks whose layout and lengths the table states."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from automap.planner.cost.rl_systems import RlSystem, system_of
from automap.planner.layout import GenerationLayouts
from automap.planner.validation.frameworks import Framework
from automap.planner.validation.predictions import Assumptions, CannotPredictError, Estimate
from automap.planner.validation.rl_run import Run, Sizes, grpo_job
from automap.planner.validation.rows import RlhfRow
from automap.planner.validation.subjects import (
    architecture_of,
    column,
    framework,
    layout_of,
    pool_of,
    product_precision,
)

PROMPT_TOKENS = 128
"""Assumed mean prompt of mathematics questions; the tables rarely state it."""
RESPONSES_PER_PROMPT = 32
"""Assumed responses per prompt, as in NeMo-RL's GRPO recipes: 64 prompts with 32 each."""
LEAST_MEAN_TOKENS = 16.0
HALVINGS = 24
"""Halvings of the interval in which a mean response length is sought; the last is below 1 %."""
SHARES = ("generation_share", "log_prob_share", "training_share")


@dataclass(frozen=True, slots=True)
class Subject:
    """A row with its framework's defaults, and the layout it trains and generates in."""

    row: RlhfRow
    defaults: Framework
    system: RlSystem
    trainer: RlhfRow
    """The row as its training GPUs see it."""
    engine: GenerationLayouts
    recompute: str

    def run(self, sizes: Sizes, assumptions: Assumptions) -> Run:
        """The job of these sizes in the row's layouts."""
        pool = pool_of(self.row, assumptions)
        return Run(
            job=grpo_job(
                sizes,
                architecture_of(self.row),
                pool,
                self.defaults.training_stack,
                product_precision(self.row),
            ),
            pool=pool,
            layouts=layout_of(self.trainer, self.defaults, assumptions),
            engine=self.engine,
            recompute=self.recompute,
            packed=sizes.packed,
            padded_tokens=sizes.padded_tokens,
        )


def predict_rlhf(
    row: RlhfRow, assumptions: Assumptions
) -> dict[str, Estimate | CannotPredictError]:
    """Seconds of one iteration, and what generation, log-probabilities and training share of it."""
    found: dict[str, Estimate | CannotPredictError] = {
        "relative_throughput": CannotPredictError(
            "relative throughput: batch and placements are not stated"
        )
    }
    try:
        found["iteration_seconds"] = _iteration(row, assumptions)
    except CannotPredictError as reason:
        found["iteration_seconds"] = reason
    if row.stage_seconds is None:
        return found
    try:
        return found | _shares(row, assumptions)
    except CannotPredictError as reason:
        return found | dict.fromkeys(SHARES, reason)


def _iteration(row: RlhfRow, assumptions: Assumptions) -> Estimate:
    _check(row)
    if row.average_sequence_length is None or row.sequence_length is None:
        raise CannotPredictError("mean sequence length is not stated")
    system = system_of(row.system)
    sizes = _sizes(row, system, row.average_sequence_length, row.sequence_length, assumptions)
    if row.synchrony != "async":
        subject = _subject(row, system, row.num_gpus)
        _assume(subject, assumptions)
        return _together(subject, subject.run(sizes, assumptions), assumptions)
    assumptions.add("split of generation and training GPUs not stated: half each, or the next best")
    subjects = [_subject(row, system, gpus) for gpus in _trainer_gpus(row)]
    _assume(subjects[0], assumptions)
    found = [_apart(subject, sizes, assumptions) for subject in subjects]
    return min(found, key=lambda one: one.value)


def _together(subject: Subject, run: Run, assumptions: Assumptions) -> Estimate:
    """Iteration whose stages run one after the other on the same GPUs."""
    assumptions.add("training state goes to the host while the engine generates")
    parts = {"actor.generate_seconds": run.generation_seconds(from_home=True)}
    parts |= run.log_prob_seconds()
    parts["actor.train_seconds"] = run.training_seconds()
    parts["state_seconds"] = run.state_seconds(subject.system.host_copy_bytes_per_second)
    parts["handover_seconds"] = run.handover_seconds(subject.system, calls=run.num_calls)
    parts["around_seconds"] = subject.system.iteration_seconds
    return Estimate(sum(parts.values()), parts)


def _apart(subject: Subject, sizes: Sizes, assumptions: Assumptions) -> Estimate:
    """Iteration with generation beside training: the slower of the two, and the weight sync.

    The driver hands batches out, scores and logs between the trainer's calls; the engines go on
    meanwhile, and stop for new weights alone. Rollouts that may be k iterations old are generated k
    iterations at a time, so their longest responses are waited for once in k.
    """
    lag = staleness(subject.row)
    many = replace(sizes, num_rollouts=lag * sizes.num_rollouts)
    rollouts = subject.run(many, assumptions)
    run = subject.run(sizes, assumptions)
    generation = rollouts.generation_seconds(from_home=False) / lag
    learning = run.log_prob_seconds() | {"actor.train_seconds": run.training_seconds()}
    around = {
        # Responses come one by one; what learns takes them as a batch.
        "handover_seconds": run.handover_seconds(subject.system, calls=run.num_calls - 1),
        "around_seconds": subject.system.iteration_seconds,
    }
    sync = run.weight_sync_seconds()
    trainer = sum(learning.values()) + sum(around.values())
    parts = {"actor.generate_seconds": generation, **learning, "weight_sync_seconds": sync}
    return Estimate(max(generation, trainer) + sync, parts | around)


def staleness(row: RlhfRow) -> int:
    """Iterations by which rollouts may lag: "8-step off policy" in `placement`; 1 if not stated."""
    stated = re.search(r"(\d+)-step off", row.placement or "", re.IGNORECASE)
    return max(int(stated[1]), 1) if stated else 1


def _shares(row: RlhfRow, assumptions: Assumptions) -> dict[str, Estimate | CannotPredictError]:
    """Shares of the stages at the mean response length at which training takes what it took."""
    _check(row)
    if row.max_response_length is None or row.training_seconds is None:
        raise CannotPredictError("max_response_length is not stated")
    system = system_of(row.system)
    longest = PROMPT_TOKENS + row.max_response_length
    sizes = _sizes(row, system, float(longest), longest, assumptions)
    subject = _subject(row, system, row.num_gpus)
    _assume(subject, assumptions)

    def run_with(mean: float) -> Run:
        return subject.run(replace(sizes, response_tokens=mean), assumptions)

    handover = subject.run(sizes, assumptions).handover_seconds(system, calls=1)
    mean = _mean_response(
        lambda tokens: run_with(tokens).training_seconds() + handover,
        row.training_seconds,
        row.max_response_length,
    )
    assumptions.add("mean response length not stated: that with the stated training seconds")
    run = run_with(mean)
    calls = {
        "generation_seconds": run.generation_seconds(from_home=True),
        "log_prob_seconds": sum(run.log_prob_seconds().values()),
        "training_seconds": run.training_seconds(),
    }
    stages = [seconds + handover for seconds in calls.values()]
    parts = calls | {"handover_seconds": handover, "response_tokens": mean}
    return {
        name: Estimate(value / sum(stages), parts)
        for name, value in zip(SHARES, stages, strict=True)
    }


def _mean_response(seconds: Callable[[float], float], wanted: float, longest: int) -> float:
    """Mean response length in tokens at which a call takes `wanted` seconds, by bisection.

    Raises:
        CannotPredictError: it takes longer at the shortest mean, or less at the longest.
    """
    low, high = LEAST_MEAN_TOKENS, float(longest)
    if not seconds(low) <= wanted <= seconds(high):
        raise CannotPredictError("no mean response length explains the training seconds")
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if seconds(middle) < wanted else (low, middle)
    return high


def _check(row: RlhfRow) -> None:
    """Refuse rows that leave open what decides their time."""
    if row.relative_throughput is not None and row.iteration_seconds is None:
        raise CannotPredictError("only a relative throughput is stated")
    if row.algorithm == "PPO":
        raise CannotPredictError(
            f"{row.algorithm}: sizes of critic and reward are not in the table"
        )
    if row.algorithm not in ("GRPO", "DAPO"):
        raise CannotPredictError(f"algorithm {row.algorithm} is not predicted")
    if row.num_rollouts is None or row.global_batch_size is None:
        raise CannotPredictError("num_rollouts or global_batch_size is not stated")


def _sizes(
    row: RlhfRow, system: RlSystem, mean: float, longest: int, assumptions: Assumptions
) -> Sizes:
    """Sizes of an iteration whose sequences have that mean and, prompts included, that maximum."""
    if row.prompt_length is None:
        assumptions.add(f"prompt_length not stated: {PROMPT_TOKENS} tokens")
    prompt = int(row.prompt_length or PROMPT_TOKENS)
    each = re.search(r"prompts x (\d+) responses", row.note)
    if each is None:
        assumptions.add(f"responses per prompt not stated: {RESPONSES_PER_PROMPT}")
    if system.averages_responses:
        assumptions.add(f"{system.name} averages responses: prompts come on top")
    if longest <= prompt:
        raise CannotPredictError("sequence_length is no longer than the prompt")
    response = mean if system.averages_responses else mean - prompt
    rollouts, batch = row.num_rollouts or 1, row.global_batch_size or 1
    return Sizes(
        prompt_tokens=prompt,
        response_tokens=min(max(response, 1.0), float(longest - prompt)),
        longest_response=longest - prompt,
        num_rollouts=rollouts,
        responses_per_prompt=int(each[1]) if each else RESPONSES_PER_PROMPT,
        num_updates=max(rollouts // batch, 1),
        has_reference=row.algorithm == "GRPO",
    )


def _trainer_gpus(row: RlhfRow) -> list[int]:
    """GPUs that may train: half of all, or the next fewer and the next more whole nodes.

    Only numbers over which the batch can be split count; of the two, who ran it will have taken
    the faster.

    Raises:
        CannotPredictError: there is no such number.
    """
    half = row.num_gpus // 2
    inner = (row.tensor_parallel_size or 1) * (row.pipeline_parallel_size or 1)
    inner *= row.context_parallel_size or 1
    step = max(min(row.gpus_per_node or 1, half), 1)

    def splits_batch(gpus: int) -> bool:
        ranks, rest = divmod(gpus, inner)
        return not rest and ranks > 0 and (row.global_batch_size or 1) % ranks == 0

    if half and splits_batch(half):
        return [half]
    fewer = next((gpus for gpus in range(half - step, 0, -step) if splits_batch(gpus)), None)
    more = next((n for n in range(half + step, row.num_gpus, step) if splits_batch(n)), None)
    found = [gpus for gpus in (fewer, more) if gpus is not None]
    if not found:
        raise CannotPredictError("no half of the GPUs is a multiple of the stated parallel sizes")
    return found


def _subject(row: RlhfRow, system: RlSystem, gpus: int) -> Subject:
    apart = gpus < row.num_gpus
    changed: dict[str, object] = {"num_gpus": gpus}
    if apart:
        changed["data_parallel_size"] = None
        if row.expert_parallel_size is not None:
            changed["expert_parallel_size"] = min(row.expert_parallel_size, gpus)
    defaults = framework(row, Assumptions())
    return Subject(
        row=row,
        defaults=defaults,
        system=system,
        trainer=row.model_copy(update=changed),
        engine=_engine(row, row.num_gpus - gpus if apart else gpus),
        recompute=row.recompute or defaults.recompute,
    )


def _assume(subject: Subject, assumptions: Assumptions) -> None:
    """Report as assumptions what the row does not state of software and layout."""
    row, trainer, defaults = subject.row, subject.trainer, subject.defaults
    framework(row, assumptions)
    if row.recompute is None:
        assumptions.add(f"recompute not stated: {subject.recompute} {defaults.reason}")
    if trainer.expert_parallel_size != row.expert_parallel_size:
        assumptions.add("expert_parallel_size exceeds the training GPUs: all of them")
    if row.generation_tensor_parallel_size is None:
        assumptions.add("generation_tensor_parallel_size not stated: 1")
    if row.micro_batch_size is None:
        assumptions.add("micro_batch_size not stated: packed to the longest sequence")
    if product_precision(row) == "fp8":
        assumptions.add("precision of the rollout not stated: fp8, as the products of training")
    assumptions.add("spread of response lengths not stated: the planner's log-normal")


def _engine(row: RlhfRow, gpus: int) -> GenerationLayouts:
    tensor = row.generation_tensor_parallel_size or 1
    pipeline = row.generation_pipeline_parallel_size or 1
    if gpus == 0 or gpus % (tensor * pipeline):
        raise CannotPredictError("GPUs are no multiple of the generation's parallel sizes")
    replicas = gpus // (tensor * pipeline)
    return GenerationLayouts(*(column(size) for size in (tensor, pipeline, 1, replicas)))
