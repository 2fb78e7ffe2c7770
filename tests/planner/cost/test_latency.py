"""Training and scoring seconds: published step times, the pipeline bubble, and how they scale."""

import numpy as np
import pytest

from automap.planner.cost import constants, memory
from automap.planner.cost.batches import micro_batches, sequence_lengths
from automap.planner.cost.estimates import CallEstimates
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.forward_call import price_forward
from automap.planner.cost.training.optimizer_step import data_parallel_seconds, exposed, whole_step
from automap.planner.cost.training.pipeline import units
from automap.planner.cost.training.train_call import price_train, stage_hop
from automap.planner.layout import IntArray, Layouts
from automap.planner.spec import WorkloadSpec
from tests.helpers.cost_model import assert_same_rows, call, ints, layouts, model, pool, workload

OPTIMIZER, FULLY = 1, 3
NO_RECOMPUTE, SELECTIVE, FULL = range(3)


def train(
    rows: Layouts,
    *,
    name: str = "llama-2-7b",
    gpu: str = "a100-80gb-sxm",
    spec: WorkloadSpec | None = None,
    micro_batch: IntArray | int = 1,
    recompute: IntArray | int = NO_RECOMPUTE,
    sequences: int = 1024,
    updates: int = 8,
    epochs: int = 1,
    lora_rank: int | None = None,
) -> CallEstimates:
    hardware = pool(gpu, num_nodes=max(int(rows.num_gpus.max(initial=1)) // 8, 1))
    return price_train(
        model(name, lora_rank=lora_rank),
        call("train", num_sequences=sequences, num_updates=updates, epochs=epochs),
        spec or workload(),
        hardware,
        load_profile(hardware.gpu),
        rows,
        micro_batch_size=np.broadcast_to(micro_batch, len(rows)).astype(np.int64),
        recompute=np.broadcast_to(recompute, len(rows)).astype(np.int64),
    )


def forward(
    rows: Layouts,
    *,
    name: str = "llama-2-7b",
    spec: WorkloadSpec | None = None,
    micro_batch: IntArray | int = 1,
    scalar_head: bool = False,
) -> CallEstimates:
    hardware = pool(num_nodes=max(int(rows.num_gpus.max(initial=1)) // 8, 1))
    return price_forward(
        model(name, scalar_head=scalar_head, trainable=False),
        call("forward", num_updates=0),
        spec or workload(),
        hardware,
        load_profile(hardware.gpu),
        rows,
        micro_batch_size=np.broadcast_to(micro_batch, len(rows)).astype(np.int64),
    )


def of_length(tokens: int, sequences: int) -> WorkloadSpec:
    half = {"mean": tokens // 2, "max": tokens // 2}
    return workload(
        prompts_per_iteration=sequences,
        prompt_length=half,
        response_length=half,
        updates_per_epoch=1,
        packed_sequences=False,
    )


PUBLISHED = [
    # GPT-3 175B on 64 A100: Korthikanti et al. (arXiv:2205.05198), table 5, without and with
    # full recomputation.
    ("gpt-3-175b", "a100-80gb-sxm", 2048, 64, 1, SELECTIVE, (8, 8, 1, 1, 3, 0), 13.75),
    ("gpt-3-175b", "a100-80gb-sxm", 2048, 64, 1, FULL, (8, 8, 1, 1, 3, 0), 18.13),
    # Llama-2 13B and 70B, FSDP on 64 A100: torchtitan, docs/performance.md, April 2024.
    ("llama-2-13b", "a100-80gb-sxm", 4096, 128, 2, NO_RECOMPUTE, (1, 1, 1, 64, 1, 3), 3.789),
    ("llama-2-70b", "a100-80gb-sxm", 4096, 128, 2, FULL, (1, 1, 1, 64, 1, 3), 23.21),
    # Llama-2 7B, FSDP on 128 A100: IBM fms-fsdp README (68 % MFU).
    ("llama-2-7b", "a100-80gb-sxm", 4096, 256, 2, NO_RECOMPUTE, (1, 1, 1, 128, 1, 3), 1.800),
    # GPT-3 175B on 128 H100: NVIDIA DGX Cloud benchmarking recipes, NeMo.
    ("gpt-3-175b", "h100-80gb-sxm", 2048, 256, 1, NO_RECOMPUTE, (4, 8, 1, 4, 12, 1), 8.91),
    # Llama-3.1 8B on 32 H100, context parallel 2: the same source.
    ("llama-3.1-8b", "h100-80gb-sxm", 8192, 512, 1, NO_RECOMPUTE, (1, 1, 2, 16, 1, 1), 13.05),
]


@pytest.mark.parametrize(
    ("name", "gpu", "tokens", "batch", "micro_batch", "recompute", "sizes", "seconds"), PUBLISHED
)
def test_step_time_of_a_published_run(
    name: str,
    gpu: str,
    tokens: int,
    batch: int,
    micro_batch: int,
    recompute: int,
    sizes: tuple[int, ...],
    seconds: float,
) -> None:
    tensor, pipeline, context, data, virtual, sharding = sizes
    rows = layouts(tensor, pipeline, context, data, virtual=virtual, sharding=sharding)
    estimate = train(
        rows,
        name=name,
        gpu=gpu,
        spec=of_length(tokens, batch),
        micro_batch=micro_batch,
        recompute=recompute,
        sequences=batch,
        updates=1,
    )
    assert estimate.seconds.total[0] == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline"), [("llama-2-7b", 1, 1), ("llama-2-70b", 8, 4)]
)
def test_model_flops_utilisation_is_what_a100_clusters_reach(
    name: str, tensor: int, pipeline: int
) -> None:
    """35-68 % of 312 TFLOP/s: published A100 runs of these sizes (measured, see PUBLISHED)."""
    data = 64 // (tensor * pipeline)
    rows = layouts(tensor, pipeline, data=data, sharding=OPTIMIZER)
    estimate = train(rows, name=name, spec=of_length(2048, 1024), updates=1)
    parameters = model(name).architecture.num_parameters()
    flops = 6 * parameters * 1024 * 2048
    utilisation = flops / (64 * 312e12 * estimate.seconds.total[0])
    assert 0.35 < utilisation < 0.68


def test_bubble_is_p_minus_1_over_m_of_the_ideal_time() -> None:
    """Narayanan et al. (arXiv:2104.04473), section 2.2; interleaving divides it by v. Embedding and
    head make the stages a little unequal, and hops between stages add to it."""
    rows = layouts(tensor=8, pipeline=[1, 4, 8, 8], virtual=[1, 1, 1, 5], data=1)
    estimate = train(rows, name="llama-2-70b", spec=of_length(2048, 64), sequences=64, updates=1)
    seconds = estimate.seconds
    ideal = seconds.compute + seconds.communication
    assert seconds.bubble[0] == 0.0
    np.testing.assert_allclose(seconds.bubble[1:3] / ideal[1:3], [3 / 64, 7 / 64], rtol=0.15)
    assert seconds.bubble[3] == pytest.approx(seconds.bubble[2] / 5, rel=1e-6)


def one_forward_one_backward(forward: list[float], backward: list[float], count: int) -> float:
    """Oracle: run the 1F1B order of every stage, each task as early as its inputs allow."""
    stages = len(forward)
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, count)
        order = [("F", i) for i in range(warm)]
        for i in range(count - warm):
            order += [("F", warm + i), ("B", i)]
        orders.append(order + [("B", i) for i in range(count - warm, count)])
    ends: dict[tuple[int, str, int], float] = {}
    free, position = [0.0] * stages, [0] * stages
    while any(position[stage] < len(orders[stage]) for stage in range(stages)):
        for stage in range(stages):
            if position[stage] == len(orders[stage]):
                continue
            kind, i = orders[stage][position[stage]]
            before = (stage - 1, "F", i) if kind == "F" else (stage + 1, "B", i)
            if 0 <= before[0] < stages and before not in ends:
                continue
            ready = max(free[stage], ends.get(before, 0.0))
            free[stage] = ready + (forward[stage] if kind == "F" else backward[stage])
            ends[stage, kind, i] = free[stage]
            position[stage] += 1
    return max(free)


@pytest.mark.parametrize(("pipeline", "sequences"), [(2, 4), (4, 4), (4, 16), (5, 12), (8, 32)])
def test_pipeline_agrees_with_a_simulation_of_1f1b(pipeline: int, sequences: int) -> None:
    """Stages of a real model: ⌈L/p⌉ layers in the middle, embedding and head at the ends."""
    rows, spec, hardware = layouts(pipeline=pipeline), of_length(2048, sequences), pool()
    actor, profile = model(), load_profile(hardware.gpu)
    setting = KernelContext(actor, hardware, profile, "bf16", sequence_lengths(spec))
    found = units(setting, rows, ints(1))
    extra = pipeline * (32 // pipeline + 1) - 32  # stages with a layer less, if any has
    counts = [32 // pipeline] * pipeline
    if 32 % pipeline:
        counts = [32 // pipeline + 1] * pipeline
        for stage in [pipeline - 1, 0][:extra] + list(range(1, pipeline - 1))[: extra - 2]:
            counts[stage] -= 1
    assert sum(counts) == 32
    forward_seconds = [count * found.layers[0].forward[0] for count in counts]
    backward_seconds = [count * found.layers[0].backward[0] for count in counts]
    for end, block in ((0, found.embedding), (pipeline - 1, found.head)):
        forward_seconds[end] += block.forward[0]
        backward_seconds[end] += block.backward[0]
    simulated = one_forward_one_backward(forward_seconds, backward_seconds, sequences)
    seconds = train(rows, spec=spec, sequences=sequences, updates=1).seconds
    hops = stage_hop(setting, rows, ints(1)).seconds[0]
    priced = seconds.compute[0] + seconds.bubble[0] - 2 * (pipeline - 1) * hops
    assert priced == pytest.approx(simulated, rel=0.03)


def test_uneven_stages_wait_for_the_fullest() -> None:
    """80 layers on 7 stages: the fullest has 12, so no better than 84 layers on 7 stages."""
    rows = layouts(tensor=8, pipeline=[7, 8], data=[1, 1])
    seconds = train(rows, name="llama-2-70b", spec=of_length(2048, 64), sequences=64).seconds
    assert seconds.compute[0] / seconds.compute[1] == pytest.approx(12 / 10, rel=0.05)


def test_recomputation_costs_a_third_at_most() -> None:
    rows = layouts(tensor=8, data=[2, 2, 2])
    compute = train(rows, name="llama-2-70b", recompute=ints(0, 1, 2)).seconds.compute
    assert 1.0 < compute[1] / compute[0] < 1.2
    assert 1.25 < compute[2] / compute[0] < 1.36


def test_longer_sequences_are_never_faster() -> None:
    rows = layouts(tensor=2, data=8)
    by_length = [
        [
            train(rows, spec=of_length(tokens, 1024)).seconds.total[0],
            forward(rows, spec=of_length(tokens, 1024)).seconds.total[0],
        ]
        for tokens in (512, 1024, 2048, 4096, 8192)
    ]
    assert np.all(np.diff(np.array(by_length), axis=0) > 0)


def test_more_data_parallelism_is_never_slower() -> None:
    data = ints(1, 2, 4, 8, 16, 32, 64)
    rows = layouts(tensor=8, pipeline=2, data=data, sharding=OPTIMIZER)
    assert np.all(np.diff(train(rows, name="llama-2-70b").seconds.total) < 0)
    assert np.all(np.diff(forward(rows, name="llama-2-70b").seconds.total) < 0)


def test_ceilings_decide_where_the_batch_does_not_divide() -> None:
    """128 sequences per update on 43 ranks take 3 each, as on 64 ranks they take 2."""
    per_rank, count = micro_batches(
        128, data_parallel_size=ints(42, 43, 64, 128), micro_batch_size=ints(2, 2, 2, 2)
    )
    assert list(per_rank) == [4, 3, 2, 1]
    assert list(count) == [2, 2, 1, 1]


def test_packing_follows_the_mean_and_padding_the_maximum() -> None:
    lengths = {"p50": 400, "p90": 1200, "max": 4096}
    rows = layouts(tensor=2, data=8)
    packed = train(rows, spec=workload(response_length=lengths)).seconds.total[0]
    padded = train(
        rows, spec=workload(response_length=lengths, packed_sequences=False)
    ).seconds.total[0]
    assert padded > 2 * packed


def test_epochs_and_updates_multiply() -> None:
    """Two epochs of eight updates each: twice one epoch."""
    rows = layouts(tensor=4, data=4, sharding=OPTIMIZER)
    once = train(rows).seconds.total[0]
    twice = train(rows, epochs=2, updates=16).seconds.total[0]
    assert twice == pytest.approx(2 * once, rel=1e-9)


def test_lora_skips_the_weight_gradients() -> None:
    """A third of the products of a step, and nearly all of the optimizer and the reduction."""
    rows = layouts(tensor=2, data=8, sharding=OPTIMIZER)
    whole, lora = train(rows).seconds, train(rows, lora_rank=16).seconds
    assert 0.6 < lora.compute[0] / whole.compute[0] < 0.8
    assert lora.optimizer[0] < 0.1 * whole.optimizer[0]


def test_a_scalar_head_is_cheaper_than_a_vocabulary() -> None:
    rows = layouts(tensor=2, data=8)
    critic = forward(rows, scalar_head=True)
    actor = forward(rows)
    assert critic.seconds.compute[0] < actor.seconds.compute[0]
    assert critic.transient.logits[0] < 0.01 * actor.transient.logits[0]


def test_forward_is_about_a_third_of_training() -> None:
    rows = layouts(tensor=8, data=2)
    ratio = (
        train(rows, name="llama-2-70b").seconds.compute
        / forward(rows, name="llama-2-70b").seconds.compute
    )
    assert ratio[0] == pytest.approx(3.1, rel=0.1)


def test_experts_cost_what_is_routed_not_what_is_stored() -> None:
    """Mixtral 8x7B activates 12.9 of 46.7 billion parameters: about twice a 7B, far from seven."""
    rows = layouts(data=8, expert=[1, 8], sharding=OPTIMIZER)
    mixtral = train(rows, name="mixtral-8x7b").seconds
    dense = train(layouts(data=8, sharding=OPTIMIZER)).seconds
    assert 1.5 < mixtral.compute[0] / dense.compute[0] < 3.5
    assert mixtral.communication[1] > 0  # the all-to-all


def test_offload_pays_the_host_link_both_ways() -> None:
    rows = layouts(tensor=8, data=2, sharding=OPTIMIZER, offload=[0, 1, 2])
    transition = train(rows, name="llama-2-70b").seconds.transition
    spec, actor, hardware = workload(), model("llama-2-70b"), pool()
    _, host = memory.home_resident_bytes(actor, spec, rows)
    link = hardware.host_link_bytes_per_second * constants.HOST_LINK_EFFICIENCY
    np.testing.assert_allclose(transition, 2 * host / link)
    assert np.all(np.diff(transition) > 0)


def test_an_offloaded_reference_reloads_once() -> None:
    rows = layouts(tensor=8, data=2, offload=[0, 2])
    found = forward(rows, name="llama-2-70b")
    weights = memory.weight_bytes(model("llama-2-70b"), rows, precision="bf16")
    link = pool().host_link_bytes_per_second * constants.HOST_LINK_EFFICIENCY
    np.testing.assert_allclose(found.seconds.transition, [0, weights[1] / link])
    assert list(found.transient.weights) == [0, weights[1]]


def test_what_overlap_leaves_is_between_nothing_and_all() -> None:
    collective, compute = np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 10.0])
    hardware = pool()
    profile = load_profile(hardware.gpu)
    setting = KernelContext(model(), hardware, profile, "bf16", sequence_lengths(workload()))
    left = exposed(setting, collective, compute)
    assert left[0] == 1.0
    assert np.all(np.diff(left) <= 0)
    assert left[2] > 0.0


def test_sharding_stages_trade_communication() -> None:
    rows = layouts(data=64, sharding=[0, 1, 2, 3])
    communication = train(rows, sequences=4096).seconds.communication
    assert communication[1] < communication[2] < communication[3]


def test_seconds_sum_to_the_total_and_are_not_negative() -> None:
    rows = layouts(tensor=[1, 8, 8, 4], pipeline=[1, 4, 5, 2], data=[8, 2, 1, 4], sharding=1)
    for found in (train(rows), forward(rows)):
        parts = [getattr(found.seconds, name) for name in found.seconds.__dataclass_fields__]
        np.testing.assert_allclose(found.seconds.total, np.sum(parts, axis=0))
        assert np.all(np.array(parts) >= 0)
        assert set(found.source) <= {0, 1, 2}


MIXED = layouts(
    tensor=[1, 2, 8, 8, 4, 1, 2],
    pipeline=[1, 2, 4, 3, 1, 8, 1],
    context=[1, 1, 1, 2, 2, 1, 4],
    data=[8, 3, 2, 1, 4, 2, 1],
    virtual=[1, 2, 5, 1, 1, 1, 1],
    sharding=[0, 1, 1, 0, 2, 1, 3],
    offload=[0, 1, 2, 0, 0, 1, 2],
)
MICRO_BATCHES = ints(1, 2, 1, 4, 8, 1, 3)
RECOMPUTES = ints(0, 1, 2, 0, 2, 1, 2)


@pytest.mark.parametrize("name", ["llama-2-7b", "mixtral-8x7b"])
def test_rows_priced_together_equal_rows_priced_alone(name: str) -> None:
    spec = workload(response_length={"p50": 400, "p90": 1200, "max": 4096})
    hardware = pool()
    profile = load_profile(hardware.gpu)

    def both(rows: IntArray) -> tuple[CallEstimates, CallEstimates]:
        return (
            price_train(
                model(name),
                call("train"),
                spec,
                hardware,
                profile,
                MIXED.take(rows),
                micro_batch_size=MICRO_BATCHES[rows],
                recompute=RECOMPUTES[rows],
            ),
            price_forward(
                model(name),
                call("forward"),
                spec,
                hardware,
                profile,
                MIXED.take(rows),
                micro_batch_size=MICRO_BATCHES[rows],
            ),
        )

    together = both(np.arange(len(MIXED)))
    for row in range(len(MIXED)):
        alone = both(ints(row))
        for whole, single in zip(together, alone, strict=True):
            assert_same_rows(whole, single, row)


def test_no_candidates_give_no_rows() -> None:
    none = layouts().take(ints())
    assert len(train(none.take(ints()), micro_batch=ints()).seconds.total) == 0
    assert len(forward(none, micro_batch=ints()).seconds.total) == 0


def test_gradients_that_nothing_overlaps_count_whole() -> None:
    """verl's Megatron-core: reduce-scatter and all-gather as long as they take by themselves."""
    rows = layouts(tensor=8, data=8, sharding=OPTIMIZER)
    beside, after = (
        train(rows, spec=workload(training_stack=stack, packed_sequences=False), micro_batch=16)
        for stack in ("megatron-core", "verl-megatron")
    )
    setting = pool(num_nodes=8)
    context = KernelContext(
        model("llama-2-7b"),
        setting,
        load_profile(setting.gpu),
        "bf16",
        sequence_lengths(workload()),
        stack=STACKS["verl-megatron"],
    )
    spec = workload(training_stack="verl-megatron")
    step = whole_step(context, spec, rows, stage_parameters(context.model, rows))
    alone = step.scatter.seconds + step.gather.seconds
    whole = data_parallel_seconds(
        context, step, rows.sharding, ints(1), forward=9.0 * alone, backward=9.0 * alone
    )
    assert whole.seconds == pytest.approx(alone)
    assert after.seconds.communication[0] > beside.seconds.communication[0]
    assert after.seconds.compute[0] == beside.seconds.compute[0]
