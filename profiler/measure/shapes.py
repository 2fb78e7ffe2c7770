"""Which shapes are measured, the most wanted first: those of the models, then a grid."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from automap.planner.catalogue import ModelArchitecture, layers_by_mixer
from automap.planner.cost import (
    BYTES_PER_ELEMENT,
    Peaks,
    attention_linears,
    decode_attention_roofline,
    expert_share,
    gemm_roofline,
    local_key_value_heads,
    mlp_linears,
    moe_roofline,
    padded_vocabulary,
    prefill_attention_roofline,
)
from automap.planner.profiles import Key
from automap.profiler.machine.devices import Device

COLLECTOR = "torch"
"""What the `collector` column of matrix products says: PyTorch's own kernels."""
TENSOR_SIZES = (1, 2, 4, 8)
MOST_TOKENS = 65_536
MOST_CACHE_TOKENS = 262_144
LARGEST_SHARE = 1 / 400
"""Share of the budget that one execution may take, by the roofline."""

MODEL_ROWS = (16, 64, 256, 1024, 4096, 1, 4, 8192, 2, 8, 32, 128, 512, 2048, 16_384)
"""Tokens, so ordered that a budget which ends early leaves them evenly spread."""
WEIGHT_GRADIENT_TOKENS = (512, 4096, 64, 16_384)
GRID_ROWS = (64, 1024, 8, 8192, 1, 256, 2048, 16, 4096, 512, 128, 4, 32, 2, 16_384)
GRID_WIDTHS = (1024, 4096, 256, 64, 8192, 2048, 512, 128, 16_384)
GRID_HEADS = ((32, 8, 128), (8, 8, 64), (32, 32, 128), (4, 2, 32), (64, 8, 128), (8, 1, 128))
LENGTHS = (64, 1024, 16, 4096, 256, 8, 2048, 512, 32, 128, 16_384, 8192)
BATCHES = (1, 16, 64, 4, 256, 2, 8, 32, 128)
CACHE_LENGTHS = (256, 2048, 32, 16_384, 1024, 64, 4096, 128, 512, 8192, 65_536)
MEMORY_BOUND = ("add", "rms_norm", "silu_multiply", "copy")
BYTES = tuple(4**power for power in (8, 5, 11, 13, 6, 10, 7, 12, 9, 14))
"""1 KiB to 256 MiB."""
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "send_recv",
    "all_to_all",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """One key of a table, with the least that it takes."""

    table: str
    key: Key
    roofline_seconds: float
    operand_bytes: float


def shapes(
    device: Device, models: Sequence[ModelArchitecture], *, budget_seconds: float
) -> dict[str, list[Shape]]:
    """Shapes by table, each once, without those that this device or budget is too small for."""
    peaks = Peaks.of(device.gpu)
    found: dict[str, Iterable[Shape]] = {
        "memory_bound": _memory_bound(peaks),
        "optimizer": _optimizers(peaks),
        "host_copies": _host_copies(peaks) if device.kind == "cuda" else [],
        "decode_attention": _decode(device, peaks, models),
        "prefill_attention": _prefill(device, peaks, models, backward=False),
        "prefill_attention_backward": _prefill(device, peaks, models, backward=True),
        "moe": _experts(device, peaks, models),
        "gemm": _products(device, peaks, models),
    }
    longest = budget_seconds * LARGEST_SHARE
    return {
        table: [
            shape
            for shape in _distinct(each)
            if shape.roofline_seconds <= longest and shape.operand_bytes <= device.memory_bytes
        ]
        for table, each in found.items()
    }


def _distinct(found: Iterable[Shape]) -> Iterator[Shape]:
    seen: set[tuple[str | int, ...]] = set()
    for shape in found:
        values = tuple(shape.key.values())
        if values not in seen:
            seen.add(values)
            yield shape


def tensor_sizes(arch: ModelArchitecture) -> list[int]:
    """Ways to split a model's heads evenly."""
    return [size for size in TENSOR_SIZES if arch.num_attention_heads % size == 0]


def _products(device: Device, peaks: Peaks, models: Sequence[ModelArchitecture]) -> Iterator[Shape]:
    """The models' in training precision, a grid; then both in the other precisions."""
    for precision in device.precisions:
        for rows, (outputs, inputs) in product(MODEL_ROWS, _linears(models)):
            yield _product(peaks, precision, rows, outputs, inputs)
        # Weight gradients: inputs × outputs, summed over tokens.
        for tokens, (outputs, inputs) in product(WEIGHT_GRADIENT_TOKENS, _linears(models)):
            yield _product(peaks, precision, inputs, outputs, tokens)
        pairs = sorted(
            product(range(len(GRID_WIDTHS)), repeat=2), key=lambda pair: (max(pair), pair)
        )
        for (first, second), rows in product(pairs, GRID_ROWS):
            yield _product(peaks, precision, rows, GRID_WIDTHS[first], GRID_WIDTHS[second])


def _linears(models: Sequence[ModelArchitecture]) -> list[tuple[int, int]]:
    """(outputs, inputs) of the models' matrices, and the reverse for data gradients."""
    pairs: dict[tuple[int, int], None] = {}
    for arch in models:
        for size in tensor_sizes(arch):
            tensor = np.array([size])
            linears = [
                linear
                for sizes, _ in layers_by_mixer(arch)
                for linear in attention_linears(sizes, tensor)
            ]
            for width in (
                arch.intermediate_size if arch.num_dense_mlp_layers else 0,
                arch.shared_expert_intermediate_size,
                arch.moe_intermediate_size,
            ):
                linears += mlp_linears(arch, tensor, width) if width else []
            for linear in linears:
                outputs, inputs = int(linear.outputs[0]), int(linear.inputs[0])
                pairs |= {(outputs, inputs): None, (inputs, outputs): None}
            vocabulary = int(padded_vocabulary(arch, tensor)[0])
            pairs |= {(vocabulary, arch.hidden_size): None, (arch.hidden_size, vocabulary): None}
    return list(pairs)


def _product(peaks: Peaks, precision: str, m: int, n: int, k: int) -> Shape:
    stored = "bf16" if precision == "fp16" else precision
    rows, columns, inner = (np.array([float(size)]) for size in (m, n, k))
    seconds = gemm_roofline(peaks, rows, columns, inner, precision=stored)
    key: Key = {"precision": precision, "collector": COLLECTOR, "m": m, "n": n, "k": k}
    num_bytes = BYTES_PER_ELEMENT[stored] * (m * k + n * k + m * n)
    return Shape("gemm", key, float(seconds[0]), num_bytes)


def _heads(models: Sequence[ModelArchitecture]) -> list[tuple[int, int, int]]:
    """(heads, key-value heads, head_dim) on a device: the models', then usual ones."""
    own = [
        (
            arch.num_attention_heads // size,
            int(local_key_value_heads(arch, np.array([size]))[0]),
            arch.head_dim,
        )
        for arch in models
        for size in tensor_sizes(arch)
    ]
    even = [config for config in own if config[0] % config[1] == 0]
    return list(dict.fromkeys([*even, *GRID_HEADS]))


def _prefill(
    device: Device, peaks: Peaks, models: Sequence[ModelArchitecture], *, backward: bool
) -> Iterator[Shape]:
    table = "prefill_attention_backward" if backward else "prefill_attention"
    element = BYTES_PER_ELEMENT[device.attention_precision]
    for batch, length, config in _by_config(models, BATCHES, LENGTHS, MOST_TOKENS):
        heads, shared, width = config
        seconds = prefill_attention_roofline(peaks, *_columns(batch, length, *config))
        key = _attention_key("sequence_length", batch, length, config)
        elements = batch * length * (2 * heads + 2 * shared) * width
        # An unfused kernel, as some builds have for the backward pass, keeps all scores.
        scores = batch * heads * length**2 if device.kind == "cpu" and backward else 0
        copies = 3 if backward else 1
        yield Shape(table, key, copies * float(seconds[0]), element * (copies * elements + scores))


def _decode(device: Device, peaks: Peaks, models: Sequence[ModelArchitecture]) -> Iterator[Shape]:
    element = BYTES_PER_ELEMENT[device.attention_precision]
    for batch, length, config in _by_config(models, BATCHES, CACHE_LENGTHS, MOST_CACHE_TOKENS):
        seconds = decode_attention_roofline(peaks, *_columns(batch, length, *config))
        key = _attention_key("kv_length", batch, length, config)
        elements = batch * length * 2 * config[1] * config[2]
        yield Shape("decode_attention", key, float(seconds[0]), element * elements)


def _by_config(
    models: Sequence[ModelArchitecture],
    batches: Sequence[int],
    lengths: Sequence[int],
    most_tokens: int,
) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """The models' own configurations at every point first, then those of the grid."""
    configs = _heads(models)
    own = len(configs) - len(GRID_HEADS)
    for part in (configs[:own], configs[own:]):
        for number in range(len(batches) * len(lengths)):
            # Along diagonals, so that what is measured first is spread over both axes.
            first, second = number % len(batches), number // len(batches)
            batch, length = batches[first], lengths[(first + second) % len(lengths)]
            if batch * length <= most_tokens:
                yield from ((batch, length, config) for config in part)


def _attention_key(name: str, batch: int, length: int, config: tuple[int, int, int]) -> Key:
    heads, shared, width = config
    return {
        "batch_size": batch,
        name: length,
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": width,
    }


def _columns(*sizes: int) -> list["np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    return [np.array([float(size)]) for size in sizes]


def _experts(device: Device, peaks: Peaks, models: Sequence[ModelArchitecture]) -> Iterator[Shape]:
    sparse = [arch for arch in models if arch.num_experts]
    for precision, rows, arch in product(device.precisions, MODEL_ROWS, sparse):
        sizes = [size for size in TENSOR_SIZES if arch.moe_intermediate_size % size == 0]
        for tensor in sizes:
            yield _expert_layer(peaks, precision, rows, arch, tensor)


def _expert_layer(
    peaks: Peaks, precision: str, tokens: int, arch: ModelArchitecture, tensor: int
) -> Shape:
    stored = "bf16" if precision == "fp16" else precision
    hidden, width, experts = arch.hidden_size, arch.moe_intermediate_size, arch.num_experts
    key: Key = {
        "precision": precision,
        "num_tokens": tokens,
        "hidden_size": hidden,
        "moe_intermediate_size": width,
        "num_experts_per_token": arch.num_experts_per_token,
        "num_experts": experts,
        "expert_tensor_parallel_size": tensor,
        "expert_parallel_size": 1,
        "routing": "balanced",
    }
    share = expert_share(*_columns(hidden, width, experts, arch.num_experts_per_token, tensor, 1))
    seconds = moe_roofline(peaks, _columns(tokens)[0], share, precision=stored)
    num_bytes = BYTES_PER_ELEMENT[stored] * 3 * experts * hidden * width / tensor
    return Shape("moe", key, float(seconds[0]), num_bytes)


def _memory_bound(peaks: Peaks) -> Iterator[Shape]:
    for size, name in product(BYTES, MEMORY_BOUND):
        key: Key = {"operator": name, "num_bytes": size}
        yield Shape("memory_bound", key, size / peaks.memory_bytes_per_second, 2 * size)


def _optimizers(peaks: Peaks) -> Iterator[Shape]:
    for size, name in product(BYTES, ("adam", "sgd")):
        key: Key = {"optimizer": name, "num_parameters": size}
        seconds = 28 * size / peaks.memory_bytes_per_second
        yield Shape("optimizer", key, seconds, 20 * size)


def _host_copies(peaks: Peaks) -> Iterator[Shape]:
    for size, direction in product(BYTES, ("to_device", "to_host")):
        key: Key = {"direction": direction, "size_bytes": size}
        yield Shape("host_copies", key, size / peaks.memory_bytes_per_second, size)


def collective_keys(num_ranks: int) -> list[Key]:
    """Collectives by size and span: powers of two up to all ranks, and all of them."""
    spans = [2**power for power in range(1, num_ranks.bit_length()) if 2**power <= num_ranks]
    if num_ranks > 1 and num_ranks not in spans:
        spans.append(num_ranks)
    return [
        {"collective": name, "num_gpus": span, "size_bytes": size}
        for size, span, name in product(BYTES, spans, COLLECTIVES)
    ]
