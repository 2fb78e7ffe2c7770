"""Placements of the caller's own: nonsense is refused by name, overflow in bytes."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from automap.planner.assembly.memory_violations import overflows
from automap.planner.assembly.parts import price_copy
from automap.planner.cost.memory import usable_bytes
from automap.planner.cost.pricing import Pricing
from automap.planner.errors import InfeasibleError, SpecError
from automap.planner.job.resolution import resolve
from automap.planner.plan.types import BytesByKind, Placement
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import JobSpec
from tests.helpers.small_jobs import pool, small_job
from tests.helpers.specs import ROLES

MIB = 2**20
GIB = 2**30


def spec_of(**changes: Any) -> JobSpec:
    """PPO of so few prompts that its models are best apart, with a copy that generates."""
    return small_job("ppo", num_nodes=2, **{"workload__prompts_per_iteration": 32, **changes})


@cache
def planned() -> Placement:
    return make_plan(spec_of()).placement()


def changed(part: str, name: str, **values: Any) -> Placement:
    """The planned placement with other values in one copy or call."""
    data = planned().model_dump(by_alias=True)
    next(each for each in data[part] if each["id"] == name).update(values)
    return Placement.model_validate(data)


def refused(placement: Placement, spec: JobSpec | None = None) -> SpecError:
    with pytest.raises(SpecError) as error:
        estimate(spec or spec_of(), placement)
    assert error.value.field.startswith("placement")
    return error.value


def copy_with(**values: Any) -> Placement:
    return changed("copies", "critic", **values)


def call_with(**values: Any) -> Placement:
    return changed("calls", "critic.train", **values)


NONSENSE = {
    "an unknown pool": (copy_with, {"pool": "h100"}, "h100"),
    "an unknown role": (copy_with, {"role": "judge"}, "critic has 0 homes"),
    "GPUs beyond the pool": (copy_with, {"first_gpu": 8}, "which has 8"),
    "a range across a node": (copy_with, {"first_gpu": 2}, "misaligned"),
    "a copy that does not exist": (call_with, {"copy": "nobody"}, "nobody"),
    "a copy of another model": (call_with, {"copy": "reward"}, "critic"),
    "another kind": (call_with, {"kind": "forward"}, "critic.train is forward"),
    "no micro-batch": (call_with, {"micro_batch_size": None}, "micro_batch_size"),
    "no recomputation": (call_with, {"recompute": None}, "recompute"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_by_name(name: str) -> None:
    change, values, wanted = NONSENSE[name]
    home = next(copy for copy in planned().copies if copy.id == "critic")
    assert home.num_gpus in (4, 8), "the misaligned range is one of whole nodes"
    assert wanted in refused(change(**values)).message


def test_a_missing_call_and_a_call_twice() -> None:
    first, *others = planned().calls
    message = refused(planned().model_copy(update={"calls": others})).message
    assert f"{first.id} of the dataflow appears 0 times" in message
    twice = planned().model_copy(update={"calls": [first, first, *others]})
    assert "2 times" in refused(twice).message


def test_calls_against_the_dataflow() -> None:
    backwards = planned().model_copy(update={"calls": planned().calls[::-1]})
    error = refused(backwards)
    assert error.field == "placement.calls"
    assert error.remedy


@pytest.mark.parametrize("cache_bytes", [1, 0, 4 * 2**20])
def test_a_cache_that_never_holds_the_longest_sequence(cache_bytes: int) -> None:
    """One sequence of 1,536 tokens takes 18 MiB: 24 layers, 2 heads of 64, keys and values."""
    placement = changed("calls", "actor.generate", kv_cache_bytes=cache_bytes)
    message = refused(placement).message
    assert "actor.generate" in message
    assert str(cache_bytes) in message


def test_constraints_bind_placements_too() -> None:
    fixed = {"critic": {"num_gpus": 1}}
    error = refused(planned(), spec_of(constraints__parallelism=fixed))
    assert "num_gpus" in error.message


def test_a_shadow_that_no_weight_sync_can_serve() -> None:
    """The rollout follows training within the iteration: its weights are always fresh."""
    flow = {
        "calls": [
            {"id": "train", "role": "actor", "kind": "train"},
            {"id": "roll", "role": "actor", "kind": "generate"},
        ],
        "edges": [{"source": "train", "target": "roll"}],
    }
    models = {"actor": {"architecture": "qwen2.5-0.5b"}}
    spec = small_job(algorithm=None, dataflow=flow, models=models)
    plan = make_plan(spec)
    placement = plan.placement().model_dump(by_alias=True)
    home, (train, roll) = placement["copies"][0], placement["calls"]
    shadow = home | {"id": "s", "kind": "shadow", "layout": roll["parallelism"], "offload": "none"}
    placement["copies"].append(shadow)
    placement["calls"] = [train, roll | {"copy": "s"}]
    error = refused(Placement.model_validate(placement), spec)
    assert error.field == "placement.copies"


def overflow(spec: JobSpec, placement: Placement) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as error:
        estimate(spec, placement)
    for reason in error.value.reasons:
        assert reason.required_bytes is not None
        assert reason.capacity_bytes is not None
        assert reason.over_bytes == reason.required_bytes - reason.capacity_bytes > 0
    return error.value


def test_a_call_that_overflows_is_named_with_its_bytes() -> None:
    placement = changed("calls", "actor.generate", kv_cache_bytes=90 * GIB)
    (reason,) = overflow(spec_of(), placement).reasons
    assert reason.phase == "actor.generate"
    assert reason.over_bytes is not None
    assert reason.over_bytes > 10 * GIB


def test_copies_that_overflow_by_themselves_and_their_calls() -> None:
    """Four 7B models and the training state of two of them on one GPU of 80 GB each."""
    models = {role: {"architecture": "llama-2-7b"} for role in ROLES["ppo"]}
    data = planned().model_dump(by_alias=True)
    plain = {"tensor_parallel_size": 1, "data_parallel_size": 4}
    for copy in data["copies"]:
        copy |= {"first_gpu": 0, "num_gpus": 4, "layout": plain, "offload": "none"}
    for call in data["calls"]:
        call["parallelism"] = plain
        if call["kind"] == "generate":
            call["kv_cache_bytes"] = GIB
    reasons = overflow(spec_of(models=models), Placement.model_validate(data)).reasons
    assert "hold through the iteration" in reasons[0].summary
    assert {"actor.train", "critic.train"} <= {reason.phase for reason in reasons}


@pytest.mark.parametrize(("free_gib", "fits"), [(4, True), (3, False)])
def test_a_weight_sync_needs_a_bucket_of_2_gib_on_either_side(free_gib: int, fits: bool) -> None:
    """Home and shadow share their GPUs here, so that each holds both buckets."""
    job = resolve(spec_of())
    pricing = Pricing(job)
    home, shadow = (price_copy(pricing, copy) for copy in planned().copies if copy.role == "actor")
    assert set(shadow.span) & set(home.span)
    held = usable_bytes(job.pools[0]) // MIB * MIB - free_gib * GIB
    full = replace(home, bytes_by_kind=BytesByKind(weights=held))
    empty = replace(shadow, bytes_by_kind=BytesByKind())
    reasons = overflows(job, [full, empty], [])
    assert (reasons == []) is fits
    assert [reason.over_bytes for reason in reasons] == ([] if fits else [GIB])
    assert all("weight sync" in reason.summary for reason in reasons)


def test_host_memory_is_counted_in_whole_mib() -> None:
    placement = copy_with(offload="optimizer")
    assert estimate(spec_of(), placement).iteration_seconds > 0
    small = spec_of(cluster__pools=[pool(2, host_memory_bytes=16 * 2**20)])
    (reason,) = overflow(small, placement).reasons
    assert "host" in reason.summary
    assert reason.required_bytes is not None
    assert reason.required_bytes % 2**20 == 0
