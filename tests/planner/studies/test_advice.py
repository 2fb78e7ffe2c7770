"""Advice on launches: known bad ones are put right, and good ones are left alone."""

import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from automap.planner.exports.exporting import export
from automap.planner.imports.importing import import_launch
from automap.planner.imports.launch import Answers, LaunchFile
from automap.planner.plan.types import Parallelism, Placement, Plan
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import JobSpec, LengthSpec
from automap.planner.studies.advice import advise
from automap.planner.studies.advice_pricing import Pricer
from automap.planner.studies.advice_result import Advice
from automap.planner.studies.advice_steps import _is_worth
from tests.helpers.framework_plans import Wanted, plan_of, spec_of

TARGET = "verl@0.9.1"
ENGINES, CACHE = "engine sizes", "cache and concurrent sequences"
LAYOUT, OFFLOAD, RECOMPUTE = (
    "training layout and micro-batches",
    "sharding and offload",
    "recomputation",
)


@cache
def best() -> Plan:
    """The best plan of a job on one node inside verl; its launch needs no advice."""
    return make_plan(job())


def job() -> JobSpec:
    spec = spec_of(Wanted(model="qwen2.5-7b", num_nodes=1))
    search = {"target": TARGET}
    return JobSpec.model_validate(spec.model_dump() | {"search": search})


def changed(
    *,
    offload: str | None = None,
    micro_batch: int | None = None,
    recompute: str | None = None,
    tensor: int | None = None,
) -> Plan:
    """The best plan with some of its decisions made badly."""
    placement = best().placement()
    copies, calls = [], []
    for copy in placement.copies:
        is_actor = copy.id == "actor" and offload is not None
        copies.append(copy.model_copy(update={"offload": offload} if is_actor else {}))
    for call in placement.calls:
        update: dict[str, object] = {}
        if call.kind == "generate" and tensor is not None:
            sizes = {"tensor_parallel_size": tensor, "data_parallel_size": 8 // tensor}
            update["parallelism"] = Parallelism(**sizes)
        if call.micro_batch_size and micro_batch is not None:
            update["micro_batch_size"] = micro_batch
        if call.kind == "train" and recompute is not None:
            update["recompute"] = recompute
        calls.append(call.model_copy(update=update))
    return estimate(best().spec, Placement(copies=copies, calls=calls))


def answers() -> Answers:
    workload = best().spec.workload
    models = dict.fromkeys(("actor", "reference"), "qwen2.5-7b")
    return Answers("h100", {}, workload.prompt_length, workload.response_length, models)


def advice_on(script: str, **options: bool) -> Advice:
    return advise([LaunchFile("launch.sh", script)], TARGET, answers(), **options)


def applied(script: str, advice: Advice) -> str:
    """The script with every advised line changed, and those added that are not there."""
    lines = script.split("\n")
    added = []
    for line in (line for change in advice.changes for line in change.lines):
        if line.before is None:
            added.append(f"  {shlex.quote(f'{line.key}={line.after}')}")
            continue
        text = lines[line.line - 1]
        assert f"{line.name}={line.before}" in text
        lines[line.line - 1] = text.replace(f"={line.before}", f"={line.after}")
    place = lines.index("settings=(") + 1
    lines[place:place] = added
    return "\n".join(lines)


BAD: dict[str, tuple[Callable[[], Plan], set[str]]] = {
    "engines of four GPUs": (lambda: changed(tensor=4), {ENGINES}),
    "micro-batches of one": (lambda: changed(micro_batch=1), {LAYOUT}),
    "all on the host": (lambda: changed(offload="weights"), {OFFLOAD}),
    "recomputed": (lambda: changed(recompute="full"), {RECOMPUTE}),
    "three of them": (
        lambda: changed(tensor=4, micro_batch=1, recompute="full"),
        {ENGINES, LAYOUT, RECOMPUTE},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_a_bad_decision_is_named_and_put_right(name: str) -> None:
    make, expected = BAD[name]
    script = export(make(), TARGET, spare_cache=False).script
    advice = advice_on(script)
    assert {group for change in advice.changes for group in change.what} == expected
    written = {each.key: each.value for each in export(best(), TARGET, spare_cache=False).settings}
    for change in advice.changes:
        assert change.gain_seconds is not None
        assert change.gain_seconds_interval is not None
        assert change.gain_seconds_interval.low <= change.gain_seconds
        assert change.gain_seconds <= change.gain_seconds_interval.high
        assert not change.changes_learning
        for line in change.lines:
            assert written[line.key] == line.after

    # The changed launch takes what was promised, and needs no more advice.
    assert advice.best_seconds is not None
    assert advice.together_seconds is not None
    assert advice.best_seconds <= advice.together_seconds
    after = applied(script, advice)
    read = import_launch([LaunchFile("launch.sh", after)], TARGET, answers())
    assert estimate(read.spec, read.placement).iteration_seconds == advice.together_seconds
    assert advice_on(after).changes == []


@pytest.mark.slow
def test_gains_add_up_and_are_those_of_an_estimate() -> None:
    script = export(changed(tensor=4, micro_batch=1), TARGET).script
    advice = advice_on(script)
    assert advice.iteration_seconds is not None
    seconds = advice.iteration_seconds
    for change in advice.changes:
        assert change.gain_seconds is not None
        assert change.iteration_seconds == pytest.approx(seconds - change.gain_seconds)
        seconds = change.iteration_seconds
        values = {line.name: line.after for line in change.lines}
        given = answers()
        alone = Answers(given.gpu, values, given.prompt_length, given.response_length, given.models)
        read = import_launch([LaunchFile("launch.sh", script)], TARGET, alone)
        own = estimate(read.spec, read.placement).iteration_seconds
        assert change.alone_gain_seconds == pytest.approx(advice.iteration_seconds - own)
    assert seconds == advice.together_seconds
    alone_gains = [change.alone_gain_seconds or 0.0 for change in advice.changes]
    assert alone_gains[0] == max(alone_gains)


def test_nothing_is_worth_it_where_the_launch_is_the_best_plan() -> None:
    advice = advice_on(export(best(), TARGET).script)
    assert (advice.unfit, advice.hazards, advice.changes) == ([], [], [])
    assert advice.together_seconds == advice.iteration_seconds
    assert advice.best_seconds == pytest.approx(advice.iteration_seconds, rel=advice.least_share)
    assert advice.proven


def test_what_does_not_fit_is_said_first_with_its_bytes_and_then_fits() -> None:
    script = export(best(), TARGET).script
    key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
    [tokens] = re.findall(rf"{key}=(\d+)\n", script)
    advice = advice_on(script.replace(f"{key}={tokens}\n", f"{key}=200000\n"))
    assert advice.iteration_seconds is None
    [reason] = advice.unfit
    assert reason.phase == "actor.train"
    assert reason.required_bytes is not None
    assert reason.capacity_bytes is not None
    assert reason.required_bytes > reason.capacity_bytes
    [change] = advice.changes
    assert change.gain_seconds is None
    assert [(line.key, line.before, line.after) for line in change.lines] == [
        (key, "200000", tokens)
    ]
    assert advice.together_seconds == pytest.approx(best().iteration_seconds)


@pytest.mark.slow
def test_what_does_not_fit_alone_says_what_it_needs() -> None:
    # Whole weights on each GPU leave no place for the optimizer's state as well.
    wanted = Wanted(num_nodes=1, tensor=1, recompute="full", micro_batch=1)
    advice = advice_on(export(plan_of(wanted), TARGET, spare_cache=False).script)
    [change] = [change for change in advice.changes if change.what == [OFFLOAD]]
    assert [reason.summary for reason in change.alone_reasons]
    assert change.needs == [LAYOUT]
    assert change.alone_gain_seconds is None
    assert change.gain_seconds is not None


@pytest.mark.slow
def test_what_changes_learning_is_offered_when_asked_for() -> None:
    script = export(best(), TARGET).script
    assert advice_on(script).changes == []
    found = advice_on(script, learning=True).changes
    assert found
    assert all(change.changes_learning for change in found)
    lines = {line.key: line.after for change in found for line in change.lines}
    assert (
        lines.items()
        <= {
            "actor_rollout_ref.actor.ppo_mini_batch_size": "256",
            "actor_rollout_ref.rollout.quantization": "fp8",
        }.items()
    )


@pytest.mark.slow
def test_budgets_of_tokens_stay_budgets() -> None:
    """A launch that fills micro-batches up to so many tokens is told another number of tokens."""
    script = export(changed(micro_batch=1), TARGET, spare_cache=False).script
    for part in ("actor.", "rollout.log_prob_", "ref.log_prob_"):
        assert f"  actor_rollout_ref.{part}use_dynamic_bsz=True" in script
    assert "  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=1536" in script
    advice = advice_on(script)
    [change] = advice.changes
    assert change.what == [LAYOUT]
    names = {line.key.rpartition(".")[2] for line in change.lines}
    assert names <= {"ppo_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu"}
    assert "ppo_max_token_len_per_gpu" in names
    assert advice_on(applied(script, advice)).changes == []


def test_remax_with_several_responses_is_not_planned_there_and_gets_no_changes() -> None:
    script = export(best(), TARGET).script
    for old, new in (
        ("algorithm.adv_estimator=grpo", "algorithm.adv_estimator=remax"),
        ("trainer.use_v1=True", "trainer.use_v1=False"),
    ):
        assert old in script
        script = script.replace(old, new)
    advice = advice_on(script)
    assert advice.changes == []
    assert advice.unplanned == f"nothing is planned inside {TARGET} for this job"


@pytest.mark.parametrize(("now", "after", "worth"), [(0.015, 0.44, False), (0.44, 0.3, True)])
def test_fewer_faults_are_not_bought_with_memory(now: float, after: float, worth: bool) -> None:
    def priced(chance: float, faults: int) -> Any:
        plan = SimpleNamespace(out_of_memory_probability=chance)
        return SimpleNamespace(
            plan=plan, faults=(False, faults), seconds=100.0, allowed_chance=0.05
        )

    assert _is_worth(priced(now, 1), priced(after, 0), 0.01) is worth


def test_a_launch_that_may_run_out_of_memory_is_told_so_and_mended() -> None:
    """A share of the memory that leaves too little beside what stays on the GPUs."""
    script = export(changed(offload="none"), TARGET).script
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    found = []
    for share in ("0.5", "0.6", "0.7", "0.8"):
        greedy = re.sub(rf"{re.escape(key)}=[0-9.]+", f"{key}={share}", script)
        greedy = re.sub(r"\S*kv_cache_memory_bytes=[0-9]+\S*\n", "\n", greedy)
        advice = advice_on(greedy)
        if advice.out_of_memory_probability is not None and not advice.hazards:
            found.append(advice)
    assert found
    for advice in found:
        assert advice.out_of_memory_probability is not None
        assert advice.out_of_memory_probability > 0.05
        assert advice.left_out_of_memory_probability is None
        last = advice.changes[-1].out_of_memory_probability
        assert last is not None
        assert last <= 0.05 + 2e-3


HYBRID = Path(__file__).parents[3] / "benchmarks" / "launches" / "openrlhf" / "hybrid-grpo.sh"
SHARE = "--vllm.gpu_memory_utilization"


def hybrid(share: str) -> tuple[list[LaunchFile], Answers]:
    """A launch of OpenRLHF whose engines take a share of the memory."""
    text = HYBRID.read_text(encoding="utf-8")
    assert f"{SHARE} 0.6" in text
    length = LengthSpec.model_construct(None, **dict.fromkeys(LengthSpec.model_fields))
    prompt, response = (length.model_copy(update={"mean": mean}) for mean in (120.0, 300.0))
    text = text.replace(f"{SHARE} 0.6", f"{SHARE} {share}")
    return [LaunchFile("launch.sh", text)], Answers("h100", {}, prompt, response)


def test_a_cache_that_does_not_fit_becomes_the_largest_that_does() -> None:
    """Not the plan's own, which is as small as its lengths allow."""
    files, given = hybrid("0.9")
    target = "openrlhf@0.11.2"
    advice = advise(files, target, given)
    assert advice.unfit
    assert advice.left == []
    lines = [line for change in advice.changes for line in change.lines]
    [share] = [float(line.after) for line in lines if line.name == SHARE]
    pricer = Pricer(files, target, given)
    # It fits whichever of the changes are taken.
    for end in range(1, len(advice.changes) + 1):
        taken = [line for change in advice.changes[:end] for line in change.lines]
        assert pricer.with_lines(taken).faults == (False, 0)
    more = [
        each.model_copy(update={"after": f"{share + 0.015}"})
        for each in lines
        if each.name == SHARE
    ]
    others = [each for each in lines if each.name != SHARE]
    assert pricer.with_lines([*others, *more]).faults > (False, 0)


def test_a_cache_that_fits_is_left_as_it_is_written() -> None:
    files, given = hybrid("0.6")
    advice = advise(files, "openrlhf@0.11.2", given)
    assert advice.unfit == []
    assert advice.changes
    assert SHARE not in {line.name for change in advice.changes for line in change.lines}


@pytest.mark.slow
def test_a_launch_that_says_a_share_is_told_another_share_and_no_bytes_beside_it() -> None:
    script = export(changed(tensor=4), TARGET).script
    key = "actor_rollout_ref.rollout.gpu_memory_utilization"
    greedy = re.sub(rf"{re.escape(key)}=[0-9.]+", f"{key}=0.97", script)
    greedy = re.sub(r"\S*kv_cache_memory_bytes=[0-9]+\S*\n", "\n", greedy)
    advice = advice_on(greedy)
    assert advice.unfit or advice.hazards
    assert advice.left == []
    lines = {line.name: line.after for change in advice.changes for line in change.lines}
    assert not any("kv_cache_memory_bytes" in name for name in lines)
    planned = {each.key: each.value for each in export(best(), TARGET, spare_cache=False).settings}
    assert float(planned[key]) + 0.1 < float(lines[key]) < 0.97
