"""Which shapes are measured: those of the models first, each once, none that does not fit."""

import numpy as np
import pytest

from automap.planner.catalogue import architecture
from automap.planner.cost.shards import attention_linears, mlp_linears
from automap.planner.profiles import COLUMNS
from automap.profiler.machine.devices import CpuDevice
from automap.profiler.measure.shapes import COLLECTIVES, Shape, collective_keys, shapes

TINY, MOE = architecture("tiny-llama"), architecture("qwen3-30b-a3b")


@pytest.fixture
def device() -> CpuDevice:
    device = CpuDevice()
    device.memory_bytes = 2**30
    return device


def keys(found: list[Shape], *names: str) -> list[tuple[object, ...]]:
    return [tuple(shape.key[name] for name in names) for shape in found]


def test_every_key_has_the_columns_of_its_table_and_comes_once(device: CpuDevice) -> None:
    for table, found in shapes(device, [TINY, MOE], budget_seconds=300).items():
        assert all(set(shape.key) == set(COLUMNS[table]) for shape in found)
        rows = keys(found, *COLUMNS[table])
        assert len(set(rows)) == len(rows) > (0 if table != "host_copies" else -1)


def test_products_of_the_model_come_first_forward_and_backward(device: CpuDevice) -> None:
    found = shapes(device, [TINY], budget_seconds=300)["gemm"]
    pairs = set(keys(found[:200], "n", "k"))
    for size in (1, 2):
        tensor = np.array([size])
        for linear in (*attention_linears(TINY, tensor), *mlp_linears(TINY, tensor, 128)):
            outputs, inputs = int(linear.outputs[0]), int(linear.inputs[0])
            assert {(outputs, inputs), (inputs, outputs)} <= pairs
    assert (128, 64, 512) in keys(found, "m", "n", "k")  # the gradient of a weight, of 512 tokens
    assert found[0].key["precision"] == "fp32"


def test_without_models_the_grid_is_measured(device: CpuDevice) -> None:
    found = shapes(device, [], budget_seconds=300)
    assert len(found["gemm"]) > 500
    assert found["moe"] == []
    assert len(set(keys(found["decode_attention"], "num_attention_heads", "head_dim"))) >= 4


def test_experts_of_a_model_that_has_them(device: CpuDevice) -> None:
    # 128 experts of 3 × 2048 × 768 in fp32 are 2.4 GB.
    assert shapes(device, [MOE], budget_seconds=300)["moe"][0].key["precision"] == "fp32"
    device.memory_bytes = 2**34
    found = shapes(device, [MOE], budget_seconds=300)["moe"]
    assert set(keys(found, "num_experts", "num_experts_per_token")) == {(128, 8)}
    assert {1, 2, 4, 8} <= {shape.key["expert_tensor_parallel_size"] for shape in found}


def test_a_short_budget_and_little_memory_leave_large_shapes_out(device: CpuDevice) -> None:
    long = shapes(device, [TINY], budget_seconds=300)["gemm"]
    short = shapes(device, [TINY], budget_seconds=3)["gemm"]
    assert max(shape.roofline_seconds for shape in short) <= 3 / 400
    assert len(short) < len(long)
    device.memory_bytes = 2**20
    assert all(
        shape.operand_bytes <= 2**20
        for found in shapes(device, [TINY], budget_seconds=300).values()
        for shape in found
    )


@pytest.mark.parametrize(("ranks", "spans"), [(1, []), (2, [2]), (6, [2, 4, 6]), (8, [2, 4, 8])])
def test_collectives_span_two_to_all_ranks(ranks: int, spans: list[int]) -> None:
    found = collective_keys(ranks)
    assert sorted({int(key["num_gpus"]) for key in found}) == spans
    for span in spans:
        mine = [key for key in found if key["num_gpus"] == span]
        assert {key["collective"] for key in mine} == set(COLLECTIVES)
        assert max(int(key["size_bytes"]) for key in mine) == 2**28
