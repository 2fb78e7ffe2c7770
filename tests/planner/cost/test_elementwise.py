"""Small kernels of a layer: counted operation by operation, and what a compiler takes away."""

from dataclasses import replace
from typing import Any

import pytest

from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.layer.elementwise import fused_elementwise, plain_elementwise
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    dense_layer_seconds,
)
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.stacks import STACKS, SoftwareStack
from tests.helpers.cost_model import ints, model, pool, workload

TOKENS, HIDDEN, WIDTH, HEADS, GROUPS, HEAD = 64, 256, 768, 8, 2, 32
PRODUCTS = ("mm", "bmm", "addmm", "scaled_dot_product", "_flash", "_efficient")
MOVES_NOTHING = (
    "view",
    "transpose",
    "expand",
    "slice",
    "unsqueeze",
    "alias",
    "detach",
    "t.default",
)


def moved_bytes(layer_type: str) -> float:
    """Bytes per token that a decoder layer's operations outside products and attention move."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils._python_dispatch import TorchDispatchMode

    config = getattr(transformers, f"{layer_type}Config")(
        hidden_size=HIDDEN,
        intermediate_size=WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        head_dim=HEAD,
        num_hidden_layers=1,
        vocab_size=32,
        attn_implementation="sdpa",
    )
    network = getattr(transformers, f"{layer_type}Model")(config).to(torch.bfloat16)
    hidden = torch.zeros(1, TOKENS, HIDDEN, dtype=torch.bfloat16)
    positions = network.rotary_emb(hidden, torch.arange(TOKENS)[None])
    total = 0

    class Count(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, operation: Any, types: Any, arguments: Any = (), named: Any = None
        ) -> Any:
            nonlocal total
            result = operation(*arguments, **(named or {}))
            name = str(operation).removeprefix("aten.")
            if not name.startswith((*PRODUCTS, *MOVES_NOTHING, "_unsafe_view")):
                tensors = [one for one in (*arguments, result) if torch.is_tensor(one)]
                tensors += [one for one in arguments[0] if isinstance(arguments[0], (list, tuple))]
                total += sum(one.numel() * one.element_size() for one in tensors)
            return result

    with torch.no_grad(), Count():
        network.layers[0](hidden, position_embeddings=positions)
    return total / TOKENS


@pytest.mark.parametrize(("layer", "norms"), [("Llama", False), ("Qwen3", True)])
def test_plain_operations_move_what_is_counted(layer: str, norms: bool) -> None:
    """Every operation of Transformers' layer reads its operands and writes its result."""
    each = plain_elementwise(2, gated=True, query_key_norm=norms)
    rotary = (HEADS + GROUPS) * HEAD
    counted = each.hidden * HIDDEN + each.rotary * rotary + each.activation * WIDTH
    assert counted == pytest.approx(moved_bytes(layer), rel=0.1)


def test_casts_are_left_out_in_fp32() -> None:
    """An RMSNorm in fp32 squares, averages, scales and multiplies: 28 bytes an element."""
    assert plain_elementwise(4, gated=True).hidden == 2 * 28 + 2 * 3 * 4
    assert plain_elementwise(2, gated=True).hidden == 2 * 36 + 2 * 3 * 2
    assert fused_elementwise(2, gated=False).activation == 4


def step_seconds(stack: SoftwareStack) -> float:
    """Forward and backward of 16,384 tokens in a layer of Llama 3.1 8B, half of it made again."""
    gpu = pool("h100-96gb-hbm2e")
    spec = workload(
        prompt_length={"mean": 1, "max": 1}, response_length={"mean": 8191, "max": 8191}
    )
    context = KernelContext(
        model("llama-3.1-8b"),
        gpu,
        load_profile(gpu.gpu),
        "bf16",
        sequence_lengths(spec),
        stack=stack,
    )
    one = ints(1)
    found = dense_layer_seconds(context, MicroBatch(one, one, one, ints(2), ints(16_384)))
    return float(found.forward[0] + found.backward[0] + found.selective[0])


def test_a_compiler_saves_what_published_twins_say() -> None:
    """torchtitan's Llama 3.1 8B with and without torch.compile, on 8 and on 128 H100.

    docs/performance.md of torchtitan: 2.84 for 2.46 s and 2.92 for 2.52 s a step.
    """
    compiled = STACKS["torchtitan"]
    plain = replace(compiled, fuses_elementwise=False)
    assert step_seconds(plain) / step_seconds(compiled) == pytest.approx(1.16, rel=0.05)


def test_stacks_of_transformers_run_plain_operations() -> None:
    plain = {name for name, stack in STACKS.items() if not stack.fuses_elementwise}
    of_transformers = {"transformers", "transformers-filled", "verl", "automap-fsdp"}
    assert plain == of_transformers | {"pytorch-bf16"}
