"""What a launch computes at once: numbers of sequences, also where it gives numbers of tokens."""

from automap.planner.cost.batches import sequence_lengths, token_budget
from automap.planner.imports.settings import Settings
from automap.planner.plan.types import Parallelism
from automap.planner.spec import WorkloadSpec

MAX_SEQUENCES = 2**40
MUCH_SPREAD = 0.1
"""Standard deviation of lengths over their mean from which waiting for the fullest is noted."""


def micro_batch_of(
    settings: Settings, workload: WorkloadSpec, role: str, kind: str, layout: Parallelism
) -> int:
    """Sequences that a data rank trains on or scores at once."""
    # The actor's log-probabilities before the update are under `rollout`.
    scored = "rollout" if role == "actor" and kind == "forward" else role
    sequences = workload.num_sequences
    if kind == "train":
        sequences = workload.sequences_per_update
    of_rank = max(-(-sequences // layout.data_parallel_size), 1)
    if is_dynamic(settings, scored):
        tokens = _tokens(settings, scored, kind)
        return min(fitting(workload, tokens * _ranks(settings, layout)), of_rank)
    decision = "train_micro_batch" if kind == "train" else "forward_micro_batch"
    size = settings.whole(decision, scored)
    if size is None:
        key = settings.key(decision, scored)
        settings.ask(f"{key} is not set, and batches are not dynamic", f"--set {key}=…")
        return 1
    refused = kind in settings.framework.even_micro_batches
    said = _mini_batch(settings, workload) if kind == "train" else sequences
    if said % (layout.data_parallel_size * size) and (refused or size < of_rank):
        told = _uneven(size, said, layout.data_parallel_size)
        of_what = "does not fit" if refused else "contradiction"
        told = f"{settings.key(decision, scored)} is {size}, {told}"
        settings.note(of_what, told, settings.given(decision, scored))
    if kind == "train" and settings.framework.fills_micro_batches:
        _note_as_they_come(settings, workload, scored)
    return min(size, of_rank)


def _mini_batch(settings: Settings, workload: WorkloadSpec) -> int:
    """Sequences of an optimizer step as the launch says it; a job has the mean of all steps.

    A mini-batch of the actor's own is one of prompts, and in verl leaves what does not fill one.
    """
    keys = [each.keys for each in settings.framework.settings if each.decision == "mini_batch"]
    if any("actor" in each for each in keys):
        prompts = min(settings.size("mini_batch", "actor"), workload.prompts_per_iteration)
        return prompts * workload.responses_per_prompt
    return workload.sequences_per_update


def _uneven(size: int, sequences: int, data_ranks: int) -> str:
    """The words for micro-batches that leave a remainder of a batch, in whole sequences."""
    if sequences % data_ranks == 0:
        return f"which does not divide the {sequences // data_ranks} sequences of a data rank"
    return f"and {sequences} sequences are no multiple of {data_ranks} data ranks × {size}"


def _note_as_they_come(settings: Settings, workload: WorkloadSpec, role: str) -> None:
    """Note micro-batches of unequally many tokens, which are priced as if they had equally many."""
    lengths = sequence_lengths(workload)
    if lengths.deviation_tokens > MUCH_SPREAD * lengths.mean_tokens:
        known = settings.knows("dynamic_batches", role)
        decision = "dynamic_batches" if known else "train_tokens"
        switch = settings.key(decision, role)
        told = (
            f"{switch} is off, so some micro-batches have more tokens than others: the rest wait "
            "for them, and they need more memory; the price assumes equally many, as with it on"
        )
        settings.note("not priced", told, settings.given(decision, role))


def is_dynamic(settings: Settings, role: str) -> bool:
    """Whether micro-batches are numbers of tokens: by a switch, or as there is such a number."""
    if settings.knows("dynamic_batches", role):
        return settings.flag("dynamic_batches", role)
    if not settings.knows("forward_tokens", role):
        return False
    return (settings.whole("forward_tokens", role, least=-1) or 0) > 0


def _ranks(settings: Settings, layout: Parallelism) -> int:
    """Context ranks that each have a budget of their own."""
    return 1 if settings.framework.whole_budgets else layout.context_parallel_size


def _tokens(settings: Settings, role: str, kind: str) -> int:
    """Tokens per GPU of a micro-batch; a critic may train on as many as it scores."""
    has_own = kind == "train" and settings.knows("train_tokens", role)
    decision = "train_tokens" if has_own else "forward_tokens"
    return settings.whole(decision, role) or 1


def fitting(workload: WorkloadSpec, tokens: int) -> int:
    """The most sequences whose micro-batch is sized for so many tokens; a longer one goes alone.

    Micro-batches grow with their sequences, so a bisection finds it.
    """
    least, most = 1, min(max(tokens, 1), MAX_SEQUENCES)
    while least < most:
        middle = (least + most + 1) // 2
        needed = token_budget(workload, middle)
        least, most = (middle, most) if needed <= tokens else (least, middle - 1)
    return least


def note_stated(settings: Settings, role: str) -> None:
    """Note the critic's number of sequences that is asked for, where another one counts."""
    given = settings.given("stated_micro_batch", role)
    settings.value("stated_micro_batch", role)
    dynamic = settings.flag("dynamic_batches", role)
    # Whoever sets what counts as well knows it.
    if given is None or settings.given("dynamic_batches", role) is not None:
        return
    counts = "forward_tokens" if dynamic else "train_micro_batch"
    read = f"{settings.key(counts, role)}, {settings.value(counts, role)}"
    settings.note("without effect", f"{given.key} has no effect; what counts is {read}", given)


def note_budgets(
    settings: Settings, workload: WorkloadSpec, layouts: dict[str, Parallelism]
) -> None:
    """Note budgets below the longest sequence, and a switch that differs between two passes."""
    if not settings.knows("dynamic_batches", "actor"):
        return
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    for role, layout in layouts.items():
        if not is_dynamic(settings, role):
            continue
        budgets = [("forward_tokens", "rollout" if role == "actor" else role)]
        for decision, of in [("train_tokens", role), *budgets] if role == "actor" else budgets:
            budget = (settings.whole(decision, of) or 1) * _ranks(settings, layout)
            if budget < longest:
                told = (
                    f"{settings.key(decision, of)} × context size is {budget} tokens, and the "
                    f"longest sequence {longest}: it goes alone, and takes more memory than the "
                    "budget says"
                )
                settings.note("contradiction", told, settings.given(decision, of))
    if is_dynamic(settings, "actor") != is_dynamic(settings, "rollout"):
        told = (
            f"{settings.key('dynamic_batches', 'actor')} and "
            f"{settings.key('dynamic_batches', 'rollout')} differ: "
            f"{settings.framework.name} ends when it starts"
        )
        settings.note("contradiction", told, settings.given("dynamic_batches", "rollout"))
