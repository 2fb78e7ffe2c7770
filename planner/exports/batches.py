"""What a framework computes at once: sequences, or tokens where those do not divide."""

from dataclasses import dataclass

from automap.planner.cost.batches import token_budget
from automap.planner.exports.subject import Subject
from automap.planner.plan.types import CallPlan, CopyPlan


@dataclass(frozen=True, slots=True)
class Batches:
    """The micro-batches of one engine; None: it has no such call."""

    dynamic: bool
    """True: `…_tokens` say what is computed at once, else `…_sequences`."""
    train_sequences: int | None
    forward_sequences: int | None
    train_tokens: int | None
    forward_tokens: int | None


def mini_batch_sequences(subject: Subject) -> int:
    """Sequences of one optimizer step, over all data ranks."""
    workload = subject.job.spec.workload
    return workload.num_sequences // workload.updates_per_epoch


def micro_batches(subject: Subject, copy: CopyPlan) -> Batches:
    """The micro-batches of a role: tokens, or sequences where these divide a rank's share."""
    train, forward = (subject.call(copy.role, kind) for kind in ("train", "forward"))
    tokens = [_tokens(subject, copy, call) for call in (train, forward)]
    # A critic has one budget for both, and trains and scores in other numbers of sequences.
    of_plans = subject.token_budgets is None and copy.role == "critic"
    differ = len(set(tokens) - {None}) > 1
    has_budget = subject.has_budget(copy.role) and not (of_plans and differ)
    return Batches(
        dynamic=has_budget or not _divide(subject, copy, train, forward),
        train_sequences=train.micro_batch_size if train else None,
        forward_sequences=forward.micro_batch_size if forward else None,
        train_tokens=tokens[0],
        forward_tokens=tokens[1],
    )


def _divide(
    subject: Subject, copy: CopyPlan, train: CallPlan | None, forward: CallPlan | None
) -> bool:
    """Whether it can cut each rank's share into micro-batches of so many sequences."""
    workload, layout = subject.job.spec.workload, copy.layout
    ranks = layout.data_parallel_size
    mini = mini_batch_sequences(subject)
    # Where generation is apart, log-probabilities and values come mini-batch by mini-batch.
    scored = mini if subject.apart else workload.num_sequences
    # An interleaved pipeline takes micro-batches in rounds of as many as it has stages.
    rounds = layout.pipeline_parallel_size if subject.virtual_stages > 1 else 1
    if forward is not None and scored % (rounds * ranks * (forward.micro_batch_size or 1)):
        return False
    if train is None:
        return True
    size = ranks * (train.micro_batch_size or 1)
    if mini % size:
        return False
    if subject.engine in subject.framework.even_over_gpus:
        # It asks this of the whole batch, though ranks that share a sequence need it not.
        return workload.num_sequences % copy.num_gpus == 0
    return mini // size % rounds == 0


def _tokens(subject: Subject, copy: CopyPlan, call: CallPlan | None) -> int | None:
    """Tokens per GPU that a micro-batch is sized for: never fewer than of the longest sequence."""
    if call is None:
        return None
    tokens = token_budget(subject.job.spec.workload, call.micro_batch_size or 1)
    shares = 1 if subject.framework.whole_budgets else copy.layout.context_parallel_size
    return -(-tokens // shares)
