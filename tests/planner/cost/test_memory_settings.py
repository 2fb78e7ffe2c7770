"""Settings of what training keeps, and what recomputation leaves: each by arithmetic."""

from typing import Any

import pytest
from pydantic import ValidationError

from automap.planner.check.check import violations
from automap.planner.cost import memory
from automap.planner.cost.layer.activations import layer_activation_bytes
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import StageParameters, stage_parameters
from automap.planner.cost.stacks import STACKS, stack_of
from automap.planner.cost.training.optimizer_step import optimizer_traffic_bytes
from automap.planner.cost.training.train_call import price_train
from automap.planner.job.resolution import resolve
from automap.planner.layout import RECOMPUTES, SHARDINGS, Layouts
from automap.planner.planning import make_plan
from automap.planner.spec import SelectiveRecompute
from tests.helpers import cost_model
from tests.helpers.cost_model import ints, layouts, model, workload
from tests.helpers.small_jobs import pool, small_job

NONE, OPTIMIZER, GRADIENT, FULL = range(len(SHARDINGS))
LLAMA = model("llama-3.1-8b")


def state(rows: Layouts, **changes: Any) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes per parameter of the fullest stage."""
    found = memory.training_state(LLAMA, workload(**changes), rows)
    whole = int(stage_parameters(LLAMA, rows).dense[0])
    weights, gradients, optimizer = (int(each[0]) / whole for each in found)
    return weights, gradients, optimizer


def parameters(rows: Layouts) -> StageParameters:
    return stage_parameters(LLAMA, rows)


@pytest.mark.parametrize(
    ("sharding", "changes", "expected"),
    [
        (OPTIMIZER, {}, 4),
        (OPTIMIZER, {"gradient_precision": "bf16"}, 2),
        # A buffer in fp32 beside 16-bit gradients, whole up to ZeRO-1 and split from ZeRO-2 on.
        (
            OPTIMIZER,
            {"gradient_precision": "bf16", "gradient_accumulation_precision": "fp32"},
            2 + 4,
        ),
        (
            GRADIENT,
            {"gradient_precision": "bf16", "gradient_accumulation_precision": "fp32"},
            (2 + 4) / 8,
        ),
        (OPTIMIZER, {"gradient_precision": "fp32", "gradient_accumulation_precision": "fp32"}, 4),
        (
            NONE,
            {"training_stack": "megatron-deepspeed", "gradient_accumulation_precision": "fp32"},
            2 + 4,
        ),
    ],
)
def test_gradients_take_the_bytes_that_are_set(
    sharding: int, changes: dict[str, str], expected: float
) -> None:
    _, gradients, _ = state(layouts(data=8, sharding=sharding), **changes)
    assert gradients == pytest.approx(expected, rel=1e-6)


def test_the_step_reads_the_sum_where_there_is_one() -> None:
    low = {"gradient_precision": "bf16"}
    assert optimizer_traffic_bytes(workload(**low)) == 42 - 4 * 2
    summed = low | {"gradient_accumulation_precision": "fp32"}
    assert optimizer_traffic_bytes(workload(**summed)) == 42


@pytest.mark.parametrize(
    ("stack", "sharding", "expected"),
    [
        ("fsdp", FULL, (4 / 8, 4 / 8, 8 / 8)),  # fp32 shards, cast when they are gathered
        ("fsdp", GRADIENT, (2, 4 / 8, 12 / 8)),
        ("megatron-core", FULL, (2 / 8, 4 / 8, 12 / 8)),
    ],
)
def test_fully_sharded_weights_are_the_masters_of_fsdp(
    stack: str, sharding: int, expected: tuple[float, float, float]
) -> None:
    found = state(layouts(data=8, sharding=sharding), training_stack=stack)
    assert found == pytest.approx(expected, rel=1e-6)


def test_in_fp32_nothing_is_cast() -> None:
    found = state(layouts(data=8, sharding=FULL), training_stack="fsdp", precision="fp32")
    assert found == pytest.approx((4 / 8, 4 / 8, 8 / 8), rel=1e-6)


def test_copies_in_8_bits_are_of_the_layers_and_under_full_sharding_of_one() -> None:
    spec = workload(training_precision="fp8")
    whole, full = layouts(data=8, sharding=OPTIMIZER), layouts(data=8, sharding=FULL)
    found = parameters(whole)
    tables = 2 * 128_256 * 4096 + 4096
    assert found.tables[0] == tables
    assert memory.eight_bit_copies(LLAMA, spec, whole)[0] == 2 * (found.dense[0] - tables)
    assert memory.eight_bit_copies(LLAMA, spec, full)[0] == 2 * found.largest_layer[0]


@pytest.mark.parametrize(("sharding", "ranks"), [(OPTIMIZER, 1), (FULL, 8)])
def test_weights_in_8_bits_replace_those_in_16(sharding: int, ranks: int) -> None:
    """One byte resident and one for the transpose, instead of two and two; tables stay."""
    low = {"training_precision": "fp8", "fp8_param_gather": True}
    rows = layouts(data=8, sharding=sharding)
    found = parameters(rows)
    dense, tables = int(found.dense[0]), int(found.tables[0])
    resident, _ = memory.home_resident_bytes(LLAMA, workload(**low), rows)
    assert resident.weights[0] == pytest.approx((dense + tables) / ranks, rel=1e-6)
    usual, _ = memory.home_resident_bytes(LLAMA, workload(training_precision="fp8"), rows)
    assert resident.optimizer[0] == usual.optimizer[0]
    copies = memory.eight_bit_copies(LLAMA, workload(**low), rows)[0]
    assert copies == (dense - tables if sharding == OPTIMIZER else found.largest_layer[0])


def kept(
    name: str, *, recompute: str = "none", stack: str = "megatron-core", **changes: Any
) -> float:
    arch = model(name).architecture
    found = layer_activation_bytes(
        arch,
        tensor_parallel_size=ints(1),
        recompute=ints(RECOMPUTES.index(recompute)),
        mlp="dense",
        stack=stack_of(workload(training_stack=stack, **changes)),
        eight_bit=changes.get("training_precision") == "fp8",
    )
    return float(found[0]) / arch.hidden_size


def test_inputs_of_products_are_kept_in_8_bits() -> None:
    """GPT: of 32·h bytes norms' outputs (2·2h) and activation (2·4h) halve; attention's output has
    a copy in 8 bits (h)."""
    assert kept("gpt-3-175b") == pytest.approx(32)
    low = {"training_precision": "fp8"}
    assert kept("gpt-3-175b", **low) == pytest.approx(32 - 2 - 4 + 1)
    # torchao keeps the input in 16 bits and casts it again.
    assert kept("gpt-3-175b", stack="fsdp", **low) == pytest.approx(32)


@pytest.mark.parametrize(
    ("selective", "expected"),
    [
        # Llama-3.1-8B: queries h, keys and values h/4 each, MLP 3.5·h wide; in elements of h.
        ("core_attention", 2 + 2 + 2.5 + 7 + 3.5),  # fused attention keeps no scores
        ("modules", 2 + 2.5 + 7),
        ("products", 1 + 2.5 + 7 + 2),  # layer's input, attention, up and gate, both outputs
        ("alternate_products", 1 + 2.25 + 3.5 + 1),  # queries, values, attention, up, down
        ("alternate_blocks", (17 + 1) / 2),
    ],
)
def test_selective_recomputation_keeps_what_its_kind_says(
    selective: SelectiveRecompute, expected: float
) -> None:
    found = kept("llama-3.1-8b", recompute="selective", selective_recompute=selective)
    assert found == pytest.approx(2 * expected)


def test_each_stack_has_its_kind_of_selective_recomputation() -> None:
    kinds = {name: stack.memory.selective for name, stack in STACKS.items()}
    assert kinds["automap-megatron"] == kinds["verl-megatron"] == "core_attention"
    assert kinds["megatron-core"] == "modules"
    assert kinds["fsdp"] == "products"
    assert kinds["torchtitan"] == "alternate_products"


def step_seconds(recompute: str, **changes: Any) -> float:
    h100 = cost_model.pool("h100-80gb-sxm", num_nodes=1)
    return float(
        price_train(
            LLAMA,
            cost_model.call("train"),
            workload(training_stack="fsdp", **changes),
            h100,
            load_profile(h100.gpu),
            layouts(data=8, sharding=FULL),
            micro_batch_size=ints(2),
            recompute=ints(RECOMPUTES.index(recompute)),
        ).seconds.compute[0]
    )


def test_what_is_made_again_takes_its_time() -> None:
    none, full = step_seconds("none"), step_seconds("full")
    again: dict[str, float] = {
        kind: step_seconds("selective", selective_recompute=kind) - none
        for kind in ("core_attention", "products", "alternate_products", "alternate_blocks")
    }
    # Layers alone are made again, so half of them are half of what full repeats.
    assert again["alternate_blocks"] == pytest.approx((full - none) / 2, rel=0.01)
    assert 0 < again["products"] < again["alternate_products"] < again["alternate_blocks"] * 1.3
    assert again["core_attention"] > 0
    assert step_seconds("selective") == none + again["products"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"gradient_precision": "fp16"}, "fp16 contradicts precision=bf16"),
        ({"gradient_accumulation_precision": "fp16"}, "fp16 contradicts precision=bf16"),
        (
            {"gradient_precision": "fp32", "gradient_accumulation_precision": "bf16"},
            "narrower than the gradients",
        ),
        ({"fp8_param_gather": True}, "needs training_precision=fp8"),
        (
            {"fp8_param_gather": True, "training_precision": "fp8", "training_stack": "fsdp"},
            "one of megatron-core",
        ),
        ({"selective_recompute": "op"}, "core_attention"),
    ],
)
def test_settings_that_contradict_are_refused(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ValidationError, match=part):
        workload(**changes)


def test_a_plan_is_priced_with_them_checked_and_said_not_to_run() -> None:
    settings = {"gradient_precision": "bf16", "fp8_param_gather": True, "training_precision": "fp8"}
    changes = {f"workload__{name}": value for name, value in settings.items()}
    stack = {"workload__training_stack": "megatron-core"}
    job = resolve(small_job(cluster__pools=[pool(gpu="h100-80gb-sxm")], **changes, **stack))
    plan = make_plan(job.spec)
    assert not list(violations(job, plan))
    assert plan.search.target == "any"
    home = next(copy for copy in plan.copies if copy.bytes_by_kind.gradients)
    fewer = home.bytes_by_kind.model_copy(update={"weights": home.bytes_by_kind.weights // 2})
    copies = [
        copy.model_copy(update={"bytes_by_kind": fewer}) if copy is home else copy
        for copy in plan.copies
    ]
    found = list(violations(job, plan.model_copy(update={"copies": copies})))
    assert any("bytes of weights" in each and "the layers, the" in each for each in found)


@pytest.mark.parametrize(
    "changes",
    [{"gradient_precision": "bf16"}, {"selective_recompute": "modules"}],
)
def test_a_target_that_cannot_be_told_refuses_them(changes: dict[str, str]) -> None:
    fields = {f"workload__{name}": value for name, value in changes.items()}
    plan = make_plan(small_job(**fields))
    (name, value), *_ = changes.items()
    assert plan.search.target == "any"
    assert any(f"workload.{name}: it is {value}" in line for line in plan.assumptions)
