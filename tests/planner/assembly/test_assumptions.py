"""What plans warn of: precisions that a GPU lacks, and links in the wrong unit."""

import math
from typing import Any

import pytest

from automap.planner.assembly.assumptions import assumptions, warnings
from automap.planner.catalogue import gpu_types
from automap.planner.cost import constants, rl_systems
from automap.planner.errors import SpecError
from automap.planner.job.resolution import resolve
from automap.planner.planning import estimate, make_plan
from tests.helpers.measured_profiles import tiny_spec
from tests.helpers.small_jobs import pool, small_job

LINKS = (
    "intra_node_bytes_per_second",
    "inter_node_bytes_per_second",
    "host_link_bytes_per_second",
)


def lines(word: str, *, workload: dict[str, Any] | None = None, **cluster: Any) -> list[str]:
    """The assumptions of a job on two nodes in which a word occurs."""
    changes = {f"workload__{name}": value for name, value in (workload or {}).items()}
    job = resolve(small_job(cluster__pools=[pool(2, **cluster)], **changes))
    return [line for line in assumptions(job) if word in line]


def test_a_gpu_without_bf16_is_named_with_what_to_run_instead() -> None:
    (line,) = lines("bf16", gpu="v100-32gb")
    assert line.startswith("pools.a100: v100-32gb does not compute in bf16")
    assert "workload.precision: fp16" in line
    plan = make_plan(small_job(cluster__pools=[pool(gpu="v100-32gb")]))
    assert line in plan.assumptions
    assert line in plan.warnings
    assert set(plan.warnings) < set(plan.assumptions)
    assert lines("bf16", gpu="v100-32gb", workload={"precision": "fp16"}) == []
    assert lines("bf16", gpu="a100-80gb-sxm") == []


def test_the_catalogue_knows_which_gpus_lack_bf16() -> None:
    """Tensor cores compute in bf16 from Ampere (compute capability 8.0) on; Volta is 7.0."""
    lacking = {name for name, gpu in gpu_types().items() if not gpu.has_bf16}
    assert lacking == {"v100-32gb", "v100-16gb"}


def test_a_gpu_without_fp8_is_named() -> None:
    (line,) = lines("fp8", gpu="a100-80gb-sxm", workload={"rollout_precision": "fp8"})
    assert "a100-80gb-sxm does not compute in fp8" in line
    assert lines("fp8", gpu="h100-80gb-sxm", workload={"rollout_precision": "fp8"}) == []


def test_what_4_bit_weights_multiply_in_is_told() -> None:
    (line,) = lines("no table", gpu="h100-80gb-sxm", workload={"rollout_precision": "int4"})
    assert "in int4 are unpacked to 16 bits on h100-80gb-sxm" in line
    (line,) = lines("no table", gpu="b200", workload={"rollout_precision": "nvfp4"})
    assert "in nvfp4 are multiplied in nvfp4 on b200-180gb-sxm" in line
    (line,) = lines("unpacked", gpu="a100-80gb-sxm", workload={"rollout_precision": "nvfp4"})
    assert "in nvfp4 are unpacked to 16 bits" in line
    assert lines("no table", gpu="b200", workload={"rollout_precision": "fp8"}) == []


def test_scores_that_a_stack_stores_are_counted_and_not_warned_of() -> None:
    for name in ("megatron-2021", "megatron-deepspeed"):
        assert lines("training_stack", workload={"training_stack": name}) == []


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("value", [25.0, 400.0, 0.5])
def test_a_link_in_gigabytes_is_refused_with_the_value_in_bytes(name: str, value: float) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(small_job(cluster__pools=[pool(2, **{name: value})]))
    assert caught.value.field == f"cluster.pools.0.{name}"
    assert f"{value:g}e9" in caught.value.remedy
    assert resolve(small_job(cluster__pools=[pool(2, **{name: value * 1e9})]))


def test_what_the_executor_adds_is_told_where_calls_take_milliseconds() -> None:
    (line,) = lines("executor took", gpu="cpu")
    assert line.startswith("pools.a100: 10 ms in each call of a model or optimizer step and")
    assert "automap calibrate learns yours" in line
    assert lines("executor took", gpu="h100") == []


def test_what_a_framework_was_measured_to_take_counts_on_cores_as_well() -> None:
    models = {role: {"architecture": "tiny-llama"} for role in ("actor", "reference")}
    spec = small_job(
        models=models | {"reward": {"function": True}},
        cluster__pools=[pool(1, gpu="cpu")],
        search__target="nemo-rl@0.7.0",
    )
    plan = make_plan(spec)
    placed = [call for call in plan.calls if call.copy_id is not None]
    steps = spec.workload.updates_per_epoch * spec.workload.epochs
    between = 1e-3 * sum(steps if call.kind == "train" else 1 for call in placed)
    found = sum(call.seconds_by_part.between for call in plan.calls)
    assert found == pytest.approx(4.0 + between)


def test_what_the_executor_adds_on_cores_is_in_calls_and_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = tiny_spec(None)
    plan = make_plan(spec)
    monkeypatch.setattr(constants, "CORE_CALL_SECONDS", 0.0)
    monkeypatch.setattr(constants, "CORE_BETWEEN_CALLS_SECONDS", 0.0)
    bare = {call.id: call for call in estimate(spec, plan.placement()).calls}
    updates = spec.workload.updates_per_epoch * spec.workload.epochs
    for call in plan.calls:
        steps = 0 if call.copy_id is None else updates if call.kind == "train" else 1
        parts, before = call.seconds_by_part, bare[call.id].seconds_by_part
        assert parts.between == pytest.approx(1e-3 * steps)
        assert before.between == 0.0
        assert parts.overhead - before.overhead == pytest.approx(10e-3 * steps, abs=2e-6)


def test_collectives_of_a_machine_that_contradict_themselves_are_warned_of() -> None:
    (line,) = lines("peer-to-peer", gpu="l40s", gpus_per_node=8)
    assert line.startswith(
        "pools.a100: on the machine that measured the collectives of l40s-48gb, all_gather among "
        "8 GPUs reached 1.2 GB/s where fewer reached 20; those of 4 and 8 GPUs are left out"
    )
    assert "automap profile" in line
    job = resolve(small_job(cluster__pools=[pool(gpu="l40s", gpus_per_node=8)]))
    assert line in warnings(job)
    (derived,) = lines("peer-to-peer", gpu="a6000", gpus_per_node=8)
    assert "the collectives of l40s-48gb" in derived
    assert lines("peer-to-peer", gpu="l40s", gpus_per_node=2) == []
    assert lines("peer-to-peer", gpu="a100-80gb-sxm") == []


def test_collectives_measured_on_other_links_are_told() -> None:
    (line,) = lines("scaled to links", gpu="a100-40gb-pcie")
    assert line == (
        "pools.a100: collectives inside a node are those measured on a100-80gb-sxm over 300 GB/s, "
        "scaled to links of 32 GB/s (intra_node_bytes_per_second)"
    )
    (slower,) = lines("scaled to links", gpu="l40s", intra_node_bytes_per_second=12e9)
    assert "over 32 GB/s, scaled to links of 12 GB/s" in slower
    assert lines("scaled to links", gpu="l40s") == []


def test_a_network_slower_than_gigabit_ethernet_is_told() -> None:
    (line,) = lines("inter_node_bytes_per_second", inter_node_bytes_per_second=2.5e7)
    assert "2.5e+07" in line
    assert "bytes per second" in line
    assert lines("inter_node", inter_node_bytes_per_second=1.25e9) == []
    assert lines("inter_node") == []


def test_an_engine_or_cache_that_plans_cannot_run_with_is_told() -> None:
    (line,) = lines("rollout_engine", workload={"rollout_engine": "sglang"})
    assert "automap cannot run this job (workload.rollout_engine: it is sglang)" in line
    (line,) = lines("cache_precision", workload={"rollout_cache_precision": "fp8"})
    assert "(workload.rollout_cache_precision: it is fp8)" in line
    assert lines("rollout_engine", workload={"rollout_engine": "vllm"}) == []


def test_iterations_that_overlap_run_as_they_are_planned() -> None:
    told = assumptions(resolve(small_job(search__staleness=1)))
    assert not [each for each in told if "staleness" in each]


def test_a_function_without_seconds_is_told_with_what_it_is_priced_at() -> None:
    def told(reward: dict[str, Any]) -> list[str]:
        found = assumptions(resolve(small_job(models__reward=reward)))
        return [line for line in found if line.startswith("models.reward: ")]

    (line,) = told({"function": True})
    assert "seconds_per_response 0" in line
    assert "1 µs" in line
    assert told({"function": True, "seconds_per_response": 0.01, "concurrency": 8}) == []
    assert told({"remote": {"requests_per_second": 100.0}}) == []


@pytest.mark.parametrize("kind", ["function", "remote"])
def test_a_process_that_takes_long_to_score_a_batch_is_told(kind: str) -> None:
    def told(**stated: Any) -> list[str]:
        reward = {"function": True, **stated} if kind == "function" else {"remote": stated}
        found = warnings(resolve(small_job(models__reward=reward)))
        return [line for line in found if line.startswith("models.reward")]

    responses = small_job().workload.num_sequences
    slow = 200.0 / responses
    (line,) = told(seconds_per_response=slow)
    assert f"one process takes 200 s to score {responses:,} responses" in line
    assert told(seconds_per_response=slow / 2) == []
    assert told(seconds_per_response=slow, concurrency=2) == []


def test_a_pool_of_which_nothing_is_used_is_told_with_why() -> None:
    pools = [pool(2), pool(1, name="slow", gpu="v100-32gb")]
    spec = small_job(cluster__pools=pools, workload__precision="fp16", search__target="any")
    plan = make_plan(spec)
    told = [line for line in plan.warnings if "nothing is placed on" in line]
    used = {copy.pool for copy in plan.copies}
    assert [line.partition(":")[0] for line in told] == [
        f"cluster.pools.{number}" for number, each in enumerate(pools) if each["name"] not in used
    ]
    assert told
    priced = estimate(plan.spec, plan.placement())
    assert not [line for line in priced.warnings if "nothing is placed on" in line]


@pytest.mark.parametrize(
    ("target", "rate", "around"),
    [("nemo-rl@0.7.0", 300e-9, 4.0), ("verl@0.9.1", 150e-9, 0.0), ("slime@0.3.1", 0.0, 0.0)],
)
def test_what_a_frameworks_driver_adds_is_priced_and_said(
    target: str, rate: float, around: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {role: {"architecture": "qwen2.5-1.5b"} for role in ("actor", "reference")}
    spec = small_job(
        models=models | {"reward": {"function": True}},
        cluster__pools=[pool(2)],
        search__target=target,
    )
    plan = make_plan(spec)
    workload = spec.workload
    longest = workload.prompt_length.max_tokens + workload.response_length.max_tokens
    placed = [call for call in plan.calls if call.copy_id is not None]
    handed = len(placed) * rate * workload.num_sequences * longest
    found = [line for line in plan.assumptions if "in which the driver of" in line]
    assert len(found) == (1 if rate else 0)
    assert all(f"{handed:.3g} s in which" in line for line in found)
    copies = [line for line in plan.assumptions if "through pageable memory" in line]
    assert len(copies) == (1 if target.startswith("nemo") else 0)
    assert sum(call.seconds_by_part.between for call in plan.calls) == pytest.approx(around)
    monkeypatch.setattr(rl_systems, "SYSTEMS", [])
    bare = estimate(spec, plan.placement())
    before = {call.id: call.seconds_by_part.overhead for call in bare.calls}
    more = {call.id: call.seconds_by_part.overhead - before[call.id] for call in placed}
    each = rate * workload.num_sequences * longest
    assert more == pytest.approx(dict.fromkeys(more, each), abs=2e-6)


def test_state_goes_to_the_host_no_faster_than_nemo_rl_copies_it() -> None:
    models = {role: {"architecture": "qwen2.5-1.5b"} for role in ("actor", "reference")}
    spec = small_job(
        models=models | {"reward": {"function": True}},
        cluster__pools=[pool(1)],
        search__target="nemo-rl@0.7.0",
    )
    plan = make_plan(spec)
    (home,) = (copy for copy in plan.copies if copy.role == "actor" and copy.kind == "home")
    (train,) = (call for call in plan.calls if call.kind == "train")
    assert home.offload == "weights"
    moved = 2.0 * home.host_bytes / 4e9
    assert train.seconds_by_part.transition == pytest.approx(moved, rel=0.1)
    interval = train.seconds_interval
    assert interval is not None
    # All of it may be a multiple: the spread of what lies around a framework's calls.
    most = train.end_seconds - train.start_seconds + moved * (math.exp(0.9) - 1.0)
    assert interval.high > most
