"""A plan that SkyRL can run, as the launch of it: everything that the plan decides is set."""

from automap.planner.exports.batches import micro_batches
from automap.planner.exports.collected import collected
from automap.planner.exports.launch import Launch
from automap.planner.exports.lines import Lines, plain
from automap.planner.exports.models import model_of
from automap.planner.exports.skyrl.engines import add_engines
from automap.planner.exports.skyrl.layouts import add_role
from automap.planner.exports.skyrl.program import PROGRAM, TEXT
from automap.planner.exports.skyrl.script import script_of
from automap.planner.exports.skyrl.values import label
from automap.planner.exports.subject import Subject, same_range
from automap.planner.exports.workload import (
    ENDLESS,
    add_clips,
    add_iterations,
    add_prompts,
    add_range,
    prompts_at_once,
    recompute_of,
)

LEAST_RATIO = 0.0001
"""Ratio of old to the rollout's probability of a token below which its sequence is left out:
SkyRL's own suggestion."""


def launch_of(subject: Subject) -> Launch:
    """The launch of a plan that nothing refuses."""
    lines = Lines(subject.framework, subject.engine, lambda value, _: plain(value), label)
    _add_pools(subject, lines)
    _add_synchrony(subject, lines)
    for copy in subject.trainers:
        add_role(subject, copy, lines)
    _add_shared(subject, lines)
    _add_batches(subject, lines)
    add_engines(subject, lines)
    _add_algorithm(subject, lines)
    _add_run(subject, lines)
    files = {PROGRAM: TEXT} if subject.job.spec.search.staleness else {}
    launch = collected(subject, lines).model_copy(update={"files": files})
    return launch.model_copy(update={"script": script_of(subject, launch)})


def _add_pools(subject: Subject, lines: Lines) -> None:
    homes = subject.homes
    where = "on GPUs of its own" if subject.apart else "on the actor's GPUs"
    because = f"{subject.generations[0].id} {where}; {', '.join(homes)}"
    lines.add("colocated", not subject.apart, because)
    beside = "reference" in homes and same_range(homes["reference"], subject.actor)
    lines.add("colocated_reference", beside, because)
    for copy in subject.trainers:
        add_range(subject, copy, lines, role=copy.role)


def _add_synchrony(subject: Subject, lines: Lines) -> None:
    spec = subject.job.spec
    staleness = spec.search.staleness
    because = f"search.staleness: {staleness}"
    lines.add("asynchronous", staleness > 0, because)
    if not staleness:
        return
    lines.add("staleness", staleness, because)
    lines.add("parallel_groups", *prompts_at_once(subject))
    keeps = bool(spec.search.keep_cache_at_sync)
    again = bool(spec.search.continuous_rollouts) and not keeps
    lines.add("caches_again", again, f"search.keep_cache_at_sync: {keeps}")
    lines.add("full_batches", spec.algorithm == "dapo", f"algorithm: {spec.algorithm}")


def _add_shared(subject: Subject, lines: Lines) -> None:
    """What actor, reference and critic have in common."""
    workload = subject.job.spec.workload
    lines.add("engine", subject.engine, f"engine of copy {subject.actor.id}: {subject.engine}")
    recompute, chosen = recompute_of(subject)
    lines.add("recompute_on", recompute != "none", chosen)
    packed = workload.packed_sequences
    lines.add("packed", packed, f"workload.packed_sequences: {packed}")
    _add_micro_batches(subject, lines)
    lines.add("scored_by_update", False, "all sequences are scored before the first update")


def _add_micro_batches(subject: Subject, lines: Lines) -> None:
    """Numbers of sequences where they divide every rank's; else one number of tokens."""
    found = [micro_batches(subject, copy) for copy in subject.trainers]
    given = ", ".join(
        f"{call.id} {call.micro_batch_size}"
        for call in subject.plan.calls
        if call.micro_batch_size and call.copy_id
    )
    because = f"micro-batches of sequences: {given}"
    actor = micro_batches(subject, subject.actor)
    dynamic = any(each.dynamic for each in found)
    lines.add("train_tokens", actor.train_tokens if dynamic else -1, because)
    forward = next((b.forward_sequences for b in found if b.forward_sequences), None)
    # It asks of these numbers also where that of tokens counts.
    lines.add("train_micro_batch", 1 if dynamic else actor.train_sequences, because)
    size = forward or actor.train_sequences
    lines.add("forward_micro_batch", 1 if dynamic else size, because)


def _add_batches(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    prompts = workload.prompts_per_iteration
    add_prompts(subject, lines)
    updates = workload.updates_per_epoch
    why = f"{prompts} prompts in updates: {updates}"
    for role in ("actor", "critic"):
        if role in subject.homes:
            lines.add("mini_batch", prompts // updates, why, role=role)
    lines.add("epochs", workload.epochs, f"workload.epochs: {workload.epochs}")
    longest = workload.prompt_length.max_tokens, workload.response_length.max_tokens
    because = f"workload.prompt_length: at most {longest[0]}"
    lines.add("prompt_length", longest[0], because)
    several = workload.turns > 1
    # Later turns begin with all that the turns before them said.
    lines.add("input_length", sum(longest) if several else longest[0], because)
    lines.add("response_length", longest[1], f"workload.response_length: at most {longest[1]}")
    lines.add("turns", workload.turns, f"workload.turns: {workload.turns}")


def _add_algorithm(subject: Subject, lines: Lines) -> None:
    spec = subject.job.spec
    algorithm, stale = spec.algorithm or "", spec.search.staleness > 0
    because = f"algorithm: {algorithm}"
    lines.add("advantage", subject.framework.algorithms[algorithm], because)
    drawn = "filter" if algorithm == "dapo" and not stale else None
    lines.add("dynamic_sampling", drawn, because)
    lines.add("even_rewards", algorithm == "dapo" and stale, because)
    add_clips(subject, lines)
    for kind in ("reward", "loss"):
        lines.add(f"kl_in_{kind}", spec.workload.kl == kind, f"workload.kl: {spec.workload.kl}")
    recomputed = subject.call("actor", "forward") is not None
    why = "actor.forward computes them again" if recomputed else "no call computes them again"
    told = f"old log-probabilities: {why}"
    # With stale rollouts it takes no loss that reads them; a mask may.
    lines.add("loss", "rollout_is" if stale or not recomputed else "regular", told)
    masks = stale and recomputed and spec.workload.kl != "reward"
    lines.add("outlier_mask", LEAST_RATIO if masks else None, told)


def _add_run(subject: Subject, lines: Lines) -> None:
    workload = subject.job.spec.workload
    lines.ask("model", "ACTOR_MODEL", model_of(subject, "actor"), role="actor")
    if "critic" in subject.homes:
        lines.ask("model", "CRITIC_MODEL", model_of(subject, "critic"), role="critic")
    lines.ask("train_files", "TRAIN_DATA", "Parquet file of prompts, as SkyRL reads them")
    lines.ask("environment", "ENVIRONMENT", "name of the skyrl-gym environment that scores")
    iterations, every = workload.iterations, workload.checkpoint_every_iterations
    add_iterations(subject, lines)
    lines.add("passes_over_prompts", ENDLESS, f"workload.iterations: {iterations}")
    because = f"workload.checkpoint_every_iterations: {every}"
    lines.add("checkpoints", -1 if every is None else every, because)
    lines.add("resume", "none" if every is None else "latest", because)
    if every is not None:
        lines.ask("save", "SAVE_FOLDER", "folder that checkpoints go to")
    lines.add("validation", -1, "the plan has no validation")
    lines.add("validation_first", False, "the plan has no validation")
    lines.add("logger", "tensorboard", "automap calibrate reads the files that it writes")
    lines.add("project", "automap", "where its metrics go")
    lines.add_text("name", subject.plan.name, "name of the plan")
