"""Every operator computes what its key says, on the CPU."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from automap.planner.profiles import Key
from automap.profiler.machine.devices import CpuDevice
from automap.profiler.measure.operations import operation

DEVICE = CpuDevice()
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {
    "precision": "fp32",
    "num_tokens": 6,
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "num_experts_per_token": 2,
    "num_experts": 4,
    "expert_tensor_parallel_size": 2,
    "expert_parallel_size": 1,
    "routing": "balanced",
}


def result(table: str, key: Key) -> torch.Tensor:
    found = operation(DEVICE, table, key)()
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_product_has_its_shape_and_precision(precision: str) -> None:
    key: Key = {"precision": precision, "collector": "torch", "m": 3, "n": 5, "k": 7}
    found = result("gemm", key)
    assert found.shape == (3, 5)
    assert found.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    assert found.float().mean() == pytest.approx(7 * 0.01**2, rel=0.02)


def test_prefill_attends_with_shared_keys_and_has_a_backward_pass() -> None:
    key: Key = {"batch_size": 2, "sequence_length": 12, **HEADS}
    assert result("prefill_attention", key).shape == (2, 8, 12, 16)
    gradients = operation(DEVICE, "prefill_attention_backward", key)()
    assert isinstance(gradients, tuple)
    assert [tuple(each.shape) for each in gradients] == [(2, 8, 12, 16), *[(2, 2, 12, 16)] * 2]


def test_decode_is_one_query_over_the_whole_cache() -> None:
    key: Key = {"batch_size": 3, "kv_length": 20, **HEADS}
    assert result("decode_attention", key).shape == (3, 2, 4, 16)
    # Grouping the heads that share keys changes nothing: as attention over repeated keys.
    query = torch.randn(3, 8, 1, 16)
    keys, values = torch.randn(3, 2, 20, 16), torch.randn(3, 2, 20, 16)
    grouped = scaled_dot_product_attention(query.view(3, 2, 4, 16), keys, values)
    plain = scaled_dot_product_attention(
        query, keys.repeat_interleave(4, dim=1), values.repeat_interleave(4, dim=1)
    )
    torch.testing.assert_close(grouped.view(3, 8, 1, 16), plain)


def test_experts_share_the_rows_and_their_width() -> None:
    assert result("moe", EXPERTS).shape == (12, 32)
    few: Key = {**EXPERTS, "num_tokens": 1}
    assert result("moe", few).shape == (2, 32)


@pytest.mark.parametrize("name", ["add", "copy", "rms_norm", "silu_multiply"])
@pytest.mark.parametrize("size", [1024, 65_536])
def test_memory_bound_operators_move_what_they_say(name: str, size: int) -> None:
    found = result("memory_bound", {"operator": name, "num_bytes": size})
    reads = 2 if name in ("add", "silu_multiply") else 1
    assert found.numel() * 4 * (reads + 1) == pytest.approx(size, rel=0.3)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_an_optimizer_steps(name: str) -> None:
    step = operation(DEVICE, "optimizer", {"optimizer": name, "num_parameters": 100})
    step()
    step()
