"""Kernels that the executor uses on a GPU alone, against torch's own in fp32."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from automap.executor.engines.fsdp.attention import Sequences, packed_attention
from automap.executor.engines.fsdp.context_parallel import ContextGroup
from benchmarks.gpu_check.findings import Figures

LENGTHS = (1, 17, 64, 300, 1024)
"""Of sequences in one packed micro-batch: shorter, as long as and longer than a kernel's tile."""
HEADS, KEY_VALUE_HEADS, HEAD_DIM = 8, 2, 64
RELATIVE_ERROR = 2.0**-6
"""Of bf16, whose 8 bits of mantissa round by 2⁻⁹: outputs, probabilities and their products."""
ADAMW_ERROR = 5e-6
"""Of fp32 after a few steps of 10⁻³ each."""
ADAMW_STEPS = 5


def measure(device: torch.device, figures: Figures) -> None:
    """Attention of packed sequences in bf16, forward and backward; AdamW's fused step."""
    for name, window in (("causal", None), ("sliding-window", 100)):
        for what, error in attention_errors(device, window=window).items():
            figures.add(f"{name} attention, {what}: relative error", error, at_most=RELATIVE_ERROR)
    figures.add("fused AdamW: error after 5 steps", adamw_error(device), at_most=ADAMW_ERROR)
    for size in (1024, 8192) if device.type == "cuda" else (256,):
        figures.add(f"bf16 product of {size}²", matmul_tflops(device, size), "TFLOP/s")


def attention_errors(device: torch.device, *, window: int | None) -> dict[str, float]:
    """Greatest error of bf16 over the greatest magnitude, of the output and of each gradient."""
    torch.manual_seed(0)
    tokens = sum(LENGTHS)
    heads = {"query": HEADS, "key": KEY_VALUE_HEADS, "value": KEY_VALUE_HEADS}
    wide = {name: torch.randn(1, each, tokens, HEAD_DIM) for name, each in heads.items()}
    upstream = torch.randn(1, tokens, HEADS, HEAD_DIM).bfloat16().to(device)
    found: list[dict[str, Tensor]] = []
    for dtype in (torch.float32, torch.bfloat16):
        given = {
            name: each.bfloat16().to(device, dtype).requires_grad_() for name, each in wide.items()
        }
        output = _attention(given, window, device)
        output.backward(upstream.to(dtype))
        gradients = {f"gradient of {name}": each.grad for name, each in given.items()}
        found.append(
            {"output": output.detach()} | {k: v for k, v in gradients.items() if v is not None}
        )
    exact, rounded = found
    return {
        what: float((rounded[what].float() - right).abs().max() / right.abs().max())
        for what, right in exact.items()
    }


def _attention(given: dict[str, Tensor], window: int | None, device: torch.device) -> Tensor:
    sequences = Sequences.of(torch.tensor(LENGTHS), device, ContextGroup())
    output, _ = packed_attention(
        nn.Module(),
        given["query"],
        given["key"],
        given["value"],
        None,
        sequences=sequences,
        sliding_window=window,
    )
    return output


def adamw_error(device: torch.device) -> float:
    """Greatest difference between torch's fused AdamW in fp32 and its plain one in fp64."""
    torch.manual_seed(0)
    start = torch.randn(4096)
    gradients = [torch.randn(4096) for _ in range(ADAMW_STEPS)]
    ends = []
    for dtype, fused in ((torch.float64, False), (torch.float32, True)):
        weights = nn.Parameter(start.to(device, dtype))
        adam = torch.optim.AdamW([weights], lr=1e-3, weight_decay=0.1, fused=fused)
        for gradient in gradients:
            weights.grad = gradient.to(device, dtype)
            adam.step()
        ends.append(weights.detach().double())
    return float((ends[0] - ends[1]).abs().max())


def matmul_tflops(device: torch.device, size: int, *, repeat: int = 10) -> float:
    """10¹² floating-point operations a second of a square product in bf16."""
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    return repeat * 2 * size**3 / seconds_of(lambda: left @ right, device, repeat) / 1e12


def seconds_of(run: Callable[[], object], device: torch.device, repeat: int) -> float:
    """Seconds of `repeat` calls after one that warms up."""
    run()
    _wait(device)
    began = time.perf_counter()
    for _ in range(repeat):
        run()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
