"""What training software keeps, by name, against papers and sources that say so; host copies."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from automap.planner.check.check import violations
from automap.planner.cost import constants, memory, transition
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.layer.activations import (
    activation_bytes,
    forward_activation_bytes,
    layer_activation_bytes,
)
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.pricing import Pricing
from automap.planner.cost.shards import stage_parameters
from automap.planner.cost.stacks import STACKS, SoftwareStack, stack_of
from automap.planner.cost.training.optimizer_step import optimizer_traffic_bytes, whole_step
from automap.planner.errors import InfeasibleError
from automap.planner.job.job import Job, Model
from automap.planner.job.resolution import resolve
from automap.planner.layout import RECOMPUTES, SHARDINGS
from automap.planner.plan.types import Parallelism
from automap.planner.planning import estimate, make_plan
from automap.planner.spec import TrainingStack
from tests.helpers.cost_model import GIB, ints, layouts, model, workload
from tests.helpers.cost_model import pool as pool_of_nodes
from tests.helpers.small_jobs import pool, small_job

NONE, OPTIMIZER, GRADIENT, FULL = range(len(SHARDINGS))


def stack(*, sequence_parallel: bool) -> SoftwareStack:
    """Megatron-LM of 2021, with and without sequence parallelism."""
    return replace(STACKS["megatron-2021"], sequence_parallel=sequence_parallel)


@pytest.mark.parametrize("tensor", [1, 8])
@pytest.mark.parametrize("recompute", RECOMPUTES)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_layer_of_gpt_keeps_what_korthikanti_et_al_count(
    tensor: int, recompute: str, sequence_parallel: bool
) -> None:
    """arXiv:2205.05198, table 2 and equations 1 to 4: activations per layer, fp16, with dropout."""
    gpt = model("gpt-3-175b").architecture
    h, a, s, t = gpt.hidden_size, gpt.num_attention_heads, 2048, tensor
    scores = 0.0 if recompute == "selective" else 5 * a * s / h
    expected = {
        (False, False): h * (10 + 24 / t + scores / t),
        (True, False): h / t * (34 + scores),
        (False, True): 2 * h,
        (True, True): 2 * h / t,
    }[sequence_parallel, recompute == "full"]
    found = layer_activation_bytes(
        gpt,
        tensor_parallel_size=ints(t),
        recompute=ints(RECOMPUTES.index(recompute)),
        mlp="dense",
        stack=stack(sequence_parallel=sequence_parallel),
        attended_tokens=s,
    )
    assert found[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 42),  # norm and clip 12; gradient, masters, moments read 16; written 14
        ({"optimizer": "sgd"}, 26),
        ({"precision": "fp32"}, 12 + 4 + 24),  # no masters: the weight is read and written
        ({"training_stack": "pytorch-bf16"}, 6 + 14),
        ({"training_stack": "megatron-deepspeed"}, 6 + 2 + 24 + 2 + 12),  # and both copies
    ],
)
def test_an_optimizer_step_moves_what_the_stack_keeps(
    changes: dict[str, str], expected: int
) -> None:
    assert optimizer_traffic_bytes(workload(**changes)) == expected


def test_gradients_travel_as_wide_as_the_stack_keeps_them() -> None:
    h100 = pool_of_nodes("h100-80gb-sxm", num_nodes=4)
    actor, rows = model(), layouts(data=32)

    def reduced(name: TrainingStack) -> float:
        # One software's slowdown for both, so that the bytes alone differ.
        stack = replace(STACKS[name], collective_slowdown=1.0)
        lengths = sequence_lengths(workload())
        of = KernelContext(actor, h100, load_profile(h100.gpu), "bf16", lengths, stack=stack)
        found = whole_step(of, workload(), rows, stage_parameters(actor, rows)).reduce
        return float(found.seconds[0])

    assert reduced("pytorch-bf16") == pytest.approx(reduced("megatron-core") / 2, rel=0.02)


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("name", STACKS)
def test_scoring_holds_one_layer_of_the_stack_without_dropout(name: str, tensor: int) -> None:
    """GPT at 2,048 tokens: 32·h bytes each; unfused, 4·a·s of scores before and after softmax."""
    gpt = model("gpt-3-175b")
    h, heads = gpt.architecture.hidden_size, gpt.architecture.num_attention_heads
    found, _ = forward_activation_bytes(
        gpt,
        workload(training_stack=name),
        sequence_lengths(workload()),
        layouts(tensor=tensor),
        micro_batch_size=ints(1),
    )
    scores = 4 * heads * 2048 if STACKS[name].attention == "unfused" else 0
    expected = (32 * h + scores) / tensor
    if not STACKS[name].sequence_parallel:  # norms' inputs and outputs whole
        expected = 8 * h + (24 * h + scores) / tensor
    assert found[0] == pytest.approx(2048 * expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "ranks", "per_parameter"),
    [
        ("megatron-core", 1, 2 + 4 + 12),
        ("megatron-deepspeed", 1, 2 + 2 + 12 + 6),
        ("megatron-deepspeed", 8, 2 + 2 + (12 + 6) / 8),
        ("pytorch-bf16", 1, 2 + 2 + 4),
    ],
)
def test_state_and_step_take_the_stacks_bytes_per_parameter(
    name: str, ranks: int, per_parameter: float
) -> None:
    actor, rows = model(), layouts(data=ranks, sharding=OPTIMIZER)
    spec = workload(training_stack=name)
    resident, _ = memory.home_resident_bytes(actor, spec, rows)
    bucket = STACKS[spec.training_stack].memory.bucket_bytes if ranks > 1 else 0
    step = memory.step_bytes(actor, spec, rows) - bucket
    parameters = int(stage_parameters(actor, rows).dense[0])
    assert (resident.total + step)[0] / parameters == pytest.approx(per_parameter, rel=1e-6)


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_stack_that_keeps_all_state_in_bf16_is_refused_another_precision(precision: str) -> None:
    with pytest.raises(
        ValidationError, match=f"pytorch-bf16 keeps .* precision={precision} is not had"
    ):
        workload(training_stack="pytorch-bf16", precision=precision)
    assert workload(training_stack="fsdp-eager", precision=precision).precision == precision


def test_a_bucket_is_no_larger_than_the_gradients() -> None:
    small, spec = model("qwen2.5-0.5b"), workload(training_stack="megatron-deepspeed")
    shared, alone = layouts(data=2, sharding=NONE), layouts(sharding=NONE)
    gradients = 2 * int(stage_parameters(small, shared).dense[0])
    bucket = memory.step_bytes(small, spec, shared) - memory.step_bytes(small, spec, alone)
    assert gradients < STACKS["megatron-deepspeed"].memory.bucket_bytes
    assert bucket[0] == gradients


def test_every_kind_of_group_has_its_own_communicator() -> None:
    rows = layouts(
        tensor=[1, 2, 1, 1, 1, 2], pipeline=[1, 1, 2, 1, 1, 2], context=[1, 1, 1, 2, 1, 2],
        data=[1, 1, 1, 1, 2, 2], expert=[1, 1, 1, 1, 2, 2],
    )  # fmt: skip
    # Context ranks repeat weights too: they make a group of data ranks.
    groups = memory.nccl_bytes(rows) // constants.COMMUNICATION_BUFFER_BYTES
    assert list(groups) == [0, 1, 1, 2, 2, 5]


def test_logits_and_the_layer_made_again_are_not_there_at_once() -> None:
    actor, spec = model("llama-3.1-8b"), workload()
    lengths = sequence_lengths(spec)

    def peak(bytes_of: str) -> tuple[int, int]:
        found = activation_bytes(
            actor if bytes_of == "both" else replace(actor, scalar_head=True),
            spec,
            lengths,
            layouts(),
            micro_batch_size=ints(4),
            num_micro_batches=ints(1),
            recompute=ints(RECOMPUTES.index("full")),
        )
        return int(found[0][0]), int(found[1][0])

    activations, logits = peak("both")
    without, _ = peak("scalar head")
    kept = 4 * lengths.max_tokens * 32 * 2 * 4096
    assert without > kept  # the layer's inputs, and one layer in full
    assert activations + logits == kept + max(without - kept, logits)


def test_stages_of_deepspeeds_pipeline_keep_what_they_sent() -> None:
    actor, lengths = model("gpt-3-175b"), sequence_lengths(workload())

    def held(name: str, *, pipeline: int) -> float:
        found, _ = activation_bytes(
            actor,
            workload(training_stack=name),
            lengths,
            layouts(pipeline=pipeline),
            micro_batch_size=ints(1),
            num_micro_batches=ints(pipeline),
            recompute=ints(RECOMPUTES.index("full")),
            first_stage=True,
        )
        return float(found[0])

    sent = 2 * actor.architecture.hidden_size * lengths.max_tokens * 8
    more = held("megatron-deepspeed", pipeline=8) - held("megatron-2021", pipeline=8)
    assert more == pytest.approx(sent, rel=1e-9)


def lora_job(**changes: object) -> Job:
    models = {"actor": {"architecture": "llama-2-7b", "lora": {"rank": 16}}}
    models |= {"reward": {"architecture": "qwen2.5-0.5b"}}
    return resolve(small_job(models=models, **changes))


def test_the_base_that_adapters_are_added_to_is_counted_on_the_host() -> None:
    """7B on a shadow of four GPUs is a quarter each; a home that generates may keep more."""
    job = lora_job()
    pricing = Pricing(job)
    base = sum(transition.model_bytes(job.models["actor"], "bf16"))
    rows = layouts(tensor=[1, 2, 2], pipeline=[1, 1, 2])
    shadow = pricing.shadow_bytes("actor", rows)
    np.testing.assert_array_equal(shadow.host, [base, -(-base // 2), -(-base // 4)])
    home = pricing.home_bytes("actor", job.pools[0], rows)
    assert list(home.host) == [base] * 3
    assert list(pricing.home_bytes("reward", job.pools[0], rows).host) == [0, 0, 0]


def test_a_home_keeps_no_more_of_the_base_than_an_engine_could_hold() -> None:
    """141 GB of Llama-2-70B fit no A100: at least two share them, on the GPU and on the host."""
    actor = model("llama-2-70b", lora_rank=16)
    base = sum(transition.model_bytes(actor, "bf16"))
    (where,) = lora_job().pools

    def limit(actor: Model, *, odd_sizes: bool = False, **settings: Any) -> int:
        return transition.base_copy_limit(actor, workload(**settings), where, odd_sizes=odd_sizes)

    assert limit(actor) == limit(actor, odd_sizes=True) == -(-base // 2)
    assert limit(actor, rollout_precision="fp8") == base
    assert limit(model("llama-2-70b")) == 0
    # 654 GB of experts in 8 bits need nine GPUs, so engines have 16, or nine stages; what is
    # no expert fits one.
    large = model("deepseek-v3", lora_rank=16)
    rest, experts = transition.model_bytes(large, "bf16")
    eight_bits = {"rollout_precision": "fp8"}
    assert limit(large, **eight_bits) == rest + -(-experts // 16)
    assert limit(large, odd_sizes=True, **eight_bits) == rest + -(-experts // 9)


@pytest.mark.parametrize("name", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_an_engine_of_an_odd_size_that_the_spec_gives_keeps_no_more_than_is_counted(
    name: str,
) -> None:
    """350 GB need five GPUs of 80 GB: eight as engines are, but six where that is asked for."""

    def host(**sizes: int) -> int:
        models = {
            "actor": {"architecture": "gpt-3-175b", "lora": {"rank": 16}},
            "reward": {"function": True},
        }
        given = {"constraints__parallelism": {"actor.generate": sizes}} if sizes else {}
        job = resolve(small_job(models=models, cluster__pools=[pool(4, gpus_per_node=6)], **given))
        return int(Pricing(job).home_bytes("actor", job.pools[0], layouts(tensor=[2])).host[0])

    whole = transition.model_bytes(model("gpt-3-175b"), "bf16")[0]
    assert host() == -(-whole // 8)
    assert host(**{name: 6}) >= -(-whole // 6)


@pytest.mark.slow
def test_a_plan_states_the_host_copy_and_none_is_found_without_room_for_it() -> None:
    found = make_plan(lora_job().spec)
    (actor,) = (copy for copy in found.copies if copy.id == "actor")
    assert actor.host_bytes >= 12 * GIB
    narrow = [pool(host_memory_bytes=8 * GIB)]
    with pytest.raises(
        InfeasibleError, match=r"actor keeps at least .* GiB of host memory per GPU"
    ):
        make_plan(lora_job(cluster__pools=narrow).spec)


def test_engines_whose_base_the_host_cannot_hold_are_not_tried() -> None:
    """13B in 16 bits: 14 GiB a GPU hold the halves of engines of two, and not the whole."""

    actor = {"architecture": "llama-2-13b", "lora": {"rank": 16}}
    pools = [pool(2, host_memory_bytes=4 * 16 * GIB)]
    models = {"actor": actor, "reward": {"function": True}}
    small = resolve(small_job(models=models, cluster__pools=pools))
    base = sum(transition.model_bytes(model("llama-2-13b"), "bf16"))
    home = Pricing(small).home_bytes("actor", small.pools[0], layouts(tensor=[1]))
    assert base > memory.usable_host_bytes(small.pools[0]) >= home.host[0] == -(-base // 2)
    found = make_plan(small.spec)
    (generate,) = (call for call in found.calls if call.id == "actor.generate")
    assert generate.parallelism is not None
    assert (
        generate.parallelism.tensor_parallel_size * generate.parallelism.pipeline_parallel_size > 1
    )

    placement = found.placement()
    (call,) = (call for call in placement.calls if call.id == "actor.generate")
    whole = Parallelism(data_parallel_size=generate.parallelism.num_gpus)
    calls = [
        each.model_copy(update={"parallelism": whole}) if each is call else each
        for each in placement.calls
    ]
    with pytest.raises(InfeasibleError, match="the base that adapters are added to takes host mem"):
        estimate(small.spec, placement.model_copy(update={"calls": calls}))
    calls = [
        each.model_copy(update={"parallelism": whole}) if each.id == call.id else each
        for each in found.calls
    ]
    broken = found.model_copy(update={"calls": calls})
    assert any("of the base per GPU" in each for each in violations(small, broken))


@pytest.mark.parametrize("gradients", [None, "fp32"])
def test_a_stack_that_a_fit_changes_is_priced_as_changed(
    gradients: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fits try constants by replacing the stack: nothing may remember the one before."""
    priced = small_job(workload__gradient_precision=gradients).workload
    before = stack_of(priced)
    other = replace(STACKS[before.name], attention_share=0.123)
    monkeypatch.setitem(STACKS, before.name, other)
    assert stack_of(priced).attention_share == 0.123


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Queries, attention's output, keys and values; norms' inputs and outputs; the MLP's halves.
        ("megatron-core", 2 * (2 * 4096 + 2 * 1024 + 2 * 2 * 4096 + 3 * 12288 + 4096 + 1024)),
        # modeling_qwen3.py: of each norm, also of queries and keys, the input in fp32 and what the
        # weight multiplies; of the MLP both halves, the activation and the product.
        ("verl", 2 * (2 * 4096 + 2 * 1024 + 2 * 4 * 4096 + 4 * 12288 + 3 * (4096 + 1024))),
    ],
)
def test_a_layer_of_qwen3_keeps_what_its_operations_save(name: str, expected: int) -> None:
    found = layer_activation_bytes(
        model("qwen3-8b").architecture,
        tensor_parallel_size=ints(1),
        recompute=ints(RECOMPUTES.index("none")),
        mlp="dense",
        stack=STACKS[name],
    )
    assert found[0] == expected


@pytest.mark.parametrize("stages", [1, 2, 8])
def test_filled_micro_batches_are_all_as_large_as_one_is_sized_for(stages: int) -> None:
    """The first stage of software that fills them holds full ones, as far as there are tokens."""
    spread = {"response_length": {"mean": 500, "max": 8_000}}

    def held(name: str, sequences: int) -> int:
        spec = workload(training_stack=name, **spread)
        return int(
            activation_bytes(
                model(),
                spec,
                sequence_lengths(spec),
                layouts(pipeline=stages),
                micro_batch_size=ints(1),
                num_micro_batches=ints(sequences),
                recompute=ints(RECOMPUTES.index("none")),
                first_stage=True,
            )[0][0]
        )

    one = held("verl-megatron", 1)
    assert held("verl-megatron", 256) == pytest.approx(stages * one, rel=0.01)
    assert (held("megatron-core", 256) < 0.8 * stages * one) == (stages > 1)
    # A rank with few sequences has no more tokens than these.
    if stages > 1:
        assert held("verl-megatron", stages) < 0.8 * stages * one
