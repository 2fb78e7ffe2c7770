"""Each operator as something that can be repeated: from the key of a table to a function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from automap.planner.profiles import Key
from automap.profiler.machine.devices import Device, Operation

TORCH_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CUDA_CACHE_BYTES = 128 * 2**20
"""Weights are taken in turn from copies of at least so many bytes: in a model they are not in the
cache of a GPU when their turn comes. On a CPU the models that it can run may well be."""
MOST_COPIES = 32
ELEMENT_BYTES = 4
"""Memory-bound operators and optimizers work in fp32."""
NORM_WIDTH = 256
"""Elements of a row of the norm, smaller tensors aside."""


def operation(device: Device, table: str, key: Key) -> Operation:
    """The operator that a key of a table (not of `collectives`) describes, with its operands."""
    return _MAKERS[table](device, key)


def warm_up(device: Device) -> None:
    """Have libraries loaded and memory at hand before anything is timed."""
    key: Key = {"optimizer": "adam", "num_parameters": 1024}
    for _ in range(2):
        operation(device, "optimizer", key)()


def _numbers(key: Key) -> dict[str, int]:
    """What of a key is no text."""
    return {name: value for name, value in key.items() if isinstance(value, int)}


def _operand(device: Device, *shape: int, precision: str) -> Tensor:
    """Operands; on a GPU, whose clock depends on them, random ones."""
    if device.kind == "cpu":
        return torch.full(shape, 0.01, dtype=TORCH_TYPES[precision])
    return torch.randn(*shape, device=device.torch_device, dtype=TORCH_TYPES[precision])


def _without_gradients(run: Operation) -> Operation:
    def inference() -> object:
        with torch.inference_mode():
            return run()

    return inference


def _gemm(device: Device, key: Key) -> Operation:
    sizes = _numbers(key)
    m, n, k, precision = sizes["m"], sizes["n"], sizes["k"], str(key["precision"])
    rows = _operand(device, m, k, precision=precision)
    copies = 1
    if device.kind == "cuda":
        copies = min(max(CUDA_CACHE_BYTES // (n * k * rows.element_size()), 1), MOST_COPIES)
    weights = [_operand(device, n, k, precision=precision) for _ in range(copies)]
    turn = 0

    def product() -> object:
        nonlocal turn
        turn += 1
        return functional.linear(rows, weights[turn % copies])

    return _without_gradients(product)


def _prefill_operands(device: Device, key: Key) -> tuple[Tensor, Tensor, Tensor]:
    sizes = _numbers(key)
    batch, length, width = sizes["batch_size"], sizes["sequence_length"], sizes["head_dim"]
    precision = device.attention_precision
    heads, shared = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    query = _operand(device, batch, heads, length, width, precision=precision)
    keys, values = (
        _operand(device, batch, shared, length, width, precision=precision) for _ in range(2)
    )
    return query, keys, values


def _causal(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    grouped = query.shape[1] != keys.shape[1]
    return functional.scaled_dot_product_attention(
        query, keys, values, is_causal=True, enable_gqa=grouped
    )


def _prefill(device: Device, key: Key) -> Operation:
    operands = _prefill_operands(device, key)
    return _without_gradients(lambda: _causal(*operands))


def _prefill_backward(device: Device, key: Key) -> Operation:
    operands = tuple(each.requires_grad_() for each in _prefill_operands(device, key))
    output = _causal(*operands)
    gradient = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, operands, gradient, retain_graph=True)


def _decode(device: Device, key: Key) -> Operation:
    """One query per sequence; the heads that share keys are rows of one small product."""
    sizes = _numbers(key)
    batch, length, width = sizes["batch_size"], sizes["kv_length"], sizes["head_dim"]
    heads, shared = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    precision = device.attention_precision
    query = _operand(device, batch, shared, heads // shared, width, precision=precision)
    keys, values = (
        _operand(device, batch, shared, length, width, precision=precision) for _ in range(2)
    )
    return _without_gradients(lambda: functional.scaled_dot_product_attention(query, keys, values))


def _moe(device: Device, key: Key) -> Operation:
    """Gated experts with balanced routing, rows sorted by expert; a product after the other."""
    sizes = _numbers(key)
    precision, hidden = str(key["precision"]), sizes["hidden_size"]
    width = sizes["moe_intermediate_size"] // sizes["expert_tensor_parallel_size"]
    experts = sizes["num_experts"] // sizes["expert_parallel_size"]
    rows = sizes["num_tokens"] * sizes["num_experts_per_token"] // sizes["expert_parallel_size"]
    up = _operand(device, experts, 2 * width, hidden, precision=precision)
    down = _operand(device, experts, hidden, width, precision=precision)
    tokens = _operand(device, max(rows, 1), hidden, precision=precision)
    parts = [part for part in tokens.tensor_split(experts) if len(part)]

    def layer() -> object:
        results = []
        for number, part in enumerate(parts):
            gate, value = functional.linear(part, up[number]).chunk(2, dim=-1)
            hidden_rows = functional.silu(gate) * value
            results.append(functional.linear(hidden_rows, down[number]))
        return torch.cat(results)

    return _without_gradients(layer)


def _memory_bound(device: Device, key: Key) -> Operation:
    """Operands so large that reads and writes together are `num_bytes`."""
    sizes = _numbers(key)
    name, total = str(key["operator"]), sizes["num_bytes"] // ELEMENT_BYTES
    moved = {"add": 3, "copy": 2, "rms_norm": 2, "silu_multiply": 3}[name]
    count = max(total // moved, 1)
    one, two = (_operand(device, count, precision="fp32") for _ in range(2))
    if name == "add":
        return _without_gradients(lambda: one + two)
    if name == "copy":
        return _without_gradients(lambda: one.clone())
    if name == "silu_multiply":
        return _without_gradients(lambda: functional.silu(one) * two)
    width = min(NORM_WIDTH, count)
    rows = one[: count // width * width].view(-1, width)
    weight = torch.ones(width, device=device.torch_device)
    return _without_gradients(lambda: functional.rms_norm(rows, (width,), weight))


def _optimizer(device: Device, key: Key) -> Operation:
    """A step over one tensor, as distributed optimizers keep their shard."""
    sizes = _numbers(key)
    weights = torch.nn.Parameter(_operand(device, sizes["num_parameters"], precision="fp32"))
    weights.grad = torch.randn_like(weights)
    optimizer: Any = torch.optim.SGD([weights], lr=1e-6)
    if key["optimizer"] == "adam":
        # What a CUDA graph records must not depend on a counter on the host.
        graphs = device.kind == "cuda"
        optimizer = torch.optim.AdamW([weights], lr=1e-6, capturable=graphs)
    return lambda: optimizer.step()


def _host_copy(device: Device, key: Key) -> Operation:
    """A copy from or to pinned memory of the host."""
    sizes = _numbers(key)
    host = torch.empty(sizes["size_bytes"], dtype=torch.uint8, pin_memory=True)
    there = torch.empty_like(host, device=device.torch_device)
    if key["direction"] == "to_device":
        return lambda: there.copy_(host, non_blocking=True)
    return lambda: host.copy_(there, non_blocking=True)


_MAKERS: dict[str, Callable[[Device, Key], Operation]] = {
    "gemm": _gemm,
    "prefill_attention": _prefill,
    "prefill_attention_backward": _prefill_backward,
    "decode_attention": _decode,
    "moe": _moe,
    "memory_bound": _memory_bound,
    "optimizer": _optimizer,
    "host_copies": _host_copy,
}
