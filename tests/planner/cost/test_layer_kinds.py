"""Models with layers of several kinds: caches, FLOPs, stages and seconds by kind.

Cache bytes are worked out by hand from published sizes (bf16, states in fp32).
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture, layer_groups
from automap.planner.catalogue.weight_formats import weight_bytes
from automap.planner.cost import memory
from automap.planner.cost.batches import sequence_lengths
from automap.planner.cost.generation.decode import EngineShapes, step_tables
from automap.planner.cost.generation.kv_cache import kv_bytes_per_token, sequence_cache_bytes
from automap.planner.cost.layer.attended import attended_squares, read_tokens
from automap.planner.cost.layer.attention import attended_weights
from automap.planner.cost.layer.transformer_layer import KernelContext
from automap.planner.cost.model_flops import model_flops
from automap.planner.cost.operators.profile import load_profile
from automap.planner.cost.shards import padded_vocabulary, parameters_by_stage
from automap.planner.cost.stage_layers import stage_layers
from automap.planner.cost.training.train_call import price_train
from automap.planner.job.resolution import resolve
from automap.planner.layout import GenerationLayouts, layers_per_stage
from automap.planner.planning import make_plan
from tests.helpers.cost_model import call, ints, layouts, model, pool, workload
from tests.helpers.specs import job_spec
from tests.planner.catalogue.current_configs import CURRENT

ALONE = GenerationLayouts(*(ints(1) for _ in range(4)))
# Bytes of a token in layers that cache every token, in layers with a window (and the window), and
# of a state, of a whole model.
CACHES: dict[str, tuple[int, int, int, int]] = {
    "gpt-oss-120b": (36_864, 36_864, 128, 0),
    "kimi-k2": (70_272, 0, 0, 0),
    "glm-4.5": (376_832, 0, 0, 0),
    "glm-4.5-air": (188_416, 0, 0, 0),
    "minimax-m2": (253_952, 0, 0, 0),
    "gemma-3-27b": (10 * 8192, 52 * 8192, 1024, 0),
    "qwen3-next-80b-a3b": (24_576, 0, 0, 77_266_944),
    "qwen3.5-35b-a3b": (20_480, 0, 0, 64_389_120),
    "nemotron-3-nano-30b-a3b": (6_144, 0, 0, 49_082_368),
    # 12 full layers and 36 of chunks, 8 heads of 128 each.
    "llama-4-scout": (12 * 4096, 36 * 4096, 8192, 0),
    # A window of 1,024 in 25 layers of 8 heads of 256; 5 full ones with 2 heads of 512.
    "gemma-4-26b-a4b": (5 * 4096, 25 * 8192, 1024, 0),
    # 512 + 64 elements of the latent, and 128 of an indexer's key in 21 of 78 layers.
    "glm-5.2": (78 * 1152 + 21 * 256, 0, 0, 0),
    "mistral-7b": (0, 32 * 4096, 4096, 0),
}


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("tokens", [50, 4000, 100_000])
def test_caches_by_kind(name: str, tokens: int) -> None:
    whole, windowed, window, state = CACHES[name]
    expected = whole * tokens + windowed * min(tokens, window) + state
    assert sequence_cache_bytes(model(name), ALONE, tokens=tokens) == [expected]
    per_token = int(kv_bytes_per_token(model(name), ALONE, tokens=tokens)[0])
    assert expected / tokens <= per_token < expected / tokens + 1


def test_caches_over_tensor_groups_and_in_8_bits() -> None:
    """Latent caches and windows: what splits, what repeats, and what precision changes."""
    eight = GenerationLayouts(ints(8), ints(1), ints(1), ints(1))
    tokens = 10_000
    assert sequence_cache_bytes(model("kimi-k2"), eight, tokens=tokens) == [70_272 * tokens]
    # Two key-value heads over eight ranks: one each; states split eight ways.
    state = 36 * (-(-(77_266_944 // 36) // 8))
    found = sequence_cache_bytes(model("qwen3-next-80b-a3b"), eight, tokens=tokens)
    assert found == [12_288 * tokens + state]
    narrow = sequence_cache_bytes(
        model("qwen3-next-80b-a3b"), ALONE, tokens=tokens, precision="fp8"
    )
    assert narrow == [12_288 * tokens + 77_266_944]


def pairs(sizes: ModelArchitecture, length: int) -> int:
    """Pairs of tokens of which the later attends to the earlier, and itself counts half."""
    query, key = np.arange(length)[:, None], np.arange(length)[None, :]
    seen = key <= query
    if sizes.sliding_window:
        seen &= query - key < sizes.sliding_window
    if sizes.attention_chunk_size:
        seen &= query // sizes.attention_chunk_size == key // sizes.attention_chunk_size
    return int(seen.sum())


@pytest.mark.parametrize(
    ("limits", "length"),
    [
        ({}, 100),
        ({"sliding_window": 30}, 100),
        ({"sliding_window": 300}, 100),
        ({"attention_chunk_size": 30}, 100),
        ({"attention_chunk_size": 25}, 100),
        ({"attention_chunk_size": 300}, 100),
    ],
)
def test_attended_pairs_are_those_of_the_mask(limits: dict[str, int], length: int) -> None:
    sizes = catalogue.architecture("llama-3.2-1b").model_copy(update=limits)
    counted = 2 * pairs(sizes, length) - length
    found = float(attended_squares(sizes, np.array([float(length)]))[0])
    # Causal attention is counted as half a square: of a token's own pair, half.
    limit = max(limits.values(), default=length)
    own_pairs_of_a_window = length - min(limit, length) if "sliding_window" in limits else 0
    assert found == counted + own_pairs_of_a_window


def test_chunks_are_read_half_on_average() -> None:
    sizes = catalogue.architecture("llama-3.2-1b").model_copy(update={"attention_chunk_size": 100})
    cached = np.array([50.0, 100.0, 101.0, 5000.0])
    assert list(read_tokens(sizes, cached)) == [50.0, 100.0, 50.0, 50.0]
    window = sizes.model_copy(update={"attention_chunk_size": 0, "sliding_window": 100})
    assert list(read_tokens(window, cached)) == [50.0, 100.0, 100.0, 100.0]


def test_flops_of_windows_and_latent_heads_by_hand() -> None:
    """Beside what is linear in tokens: 1,024 sequences of 2,048 tokens less 2,048 of 1,024."""
    half = workload(
        prompt_length={"mean": 512, "max": 512}, response_length={"mean": 512, "max": 512}
    )

    def quadratic(name: str) -> float:
        one = model(name)
        return model_flops(one, call("forward"), workload()) - 2.0 * model_flops(
            one, call("forward"), half
        )

    square, window = 2048**2 - 2 * 1024**2, 128**2  # of 2·n·w − w², twice − w² less
    expected = 1024 * 2.0 * 64 * 64 * 18 * (square + window)
    assert quadratic("gpt-oss-120b") == pytest.approx(expected, rel=1e-9)
    # 192 for queries and keys and 128 for values, instead of twice 128.
    expected = 1024 * 61 * 64 * (192.0 + 128.0) * square
    assert quadratic("kimi-k2") == pytest.approx(expected, rel=1e-9)
    # An indexer of 64 heads of 128 looks at all pairs; what it picks is no limit yet.
    more = 1024 * 61 * 64 * 128.0 * square
    expected = 2.0 * quadratic("kimi-k2") + more
    assert quadratic("deepseek-v3.2") == pytest.approx(expected, rel=1e-9)
    expected = 1024 * 2.0 * 12 * 16 * 256 * square
    assert quadratic("qwen3-next-80b-a3b") == pytest.approx(expected, rel=1e-9)


def test_flops_of_states_by_hand() -> None:
    """Qwen3-Next: 36 layers of 32 states of 128 × 128, three products with it a token."""
    one, tokens = model("qwen3-next-80b-a3b"), 1024 * 2048
    arch = one.architecture
    products = arch.active_parameters() - arch.embedding_parameters - 48 * arch.router_parameters
    attention = 1024 * 2.0 * 12 * 16 * 256 * 2048**2
    state = model_flops(one, call("forward"), workload()) - 2.0 * tokens * products - attention
    assert state == pytest.approx(tokens * 36 * 6.0 * 32 * 128 * 128, rel=0.05)


def test_generation_counts_what_a_response_attends_to() -> None:
    """Prompts of 1,024 and responses of 1,024 with a window of 128: linear, but for the start."""
    base = catalogue.architecture("llama-3.2-1b")
    window = base.model_copy(update={"sliding_window": 128})
    one = model("llama-3.2-1b")
    found = []
    for arch in (base, window):
        changed = type(one)(one.role, arch, one.scalar_head, one.trainable, one.lora_rank)
        found.append(model_flops(changed, call("generate"), workload()))
    each = 1024 * 2.0 * 16 * 32 * 64
    assert found[0] - found[1] == pytest.approx(each * (2048**2 - (2 * 2048 * 128 - 128**2)))


@pytest.mark.parametrize("name", sorted(set(CURRENT) | {"llama-3.1-8b", "qwen3-30b-a3b"}))
def test_one_gpu_holds_every_parameter(name: str) -> None:
    """Beside padding of the vocabulary, the shard on one GPU is the model."""
    one = model(name)
    arch = one.architecture
    dense, expert = parameters_by_stage(one, layouts())
    rows = int(padded_vocabulary(arch, ints(1))[0]) - arch.vocab_size
    padding = rows * arch.hidden_size * (1 if arch.tied_embeddings else 2)
    assert dense[0, 0] + expert[0, 0] == arch.num_parameters() + padding


@pytest.mark.parametrize("name", ["gemma-3-27b", "nemotron-3-nano-30b-a3b", "llama-4-maverick"])
def test_stages_hold_the_layers_that_lie_there(name: str) -> None:
    arch = catalogue.architecture(name)
    counts = np.arange(1, arch.num_layers + 1)
    found = stage_layers(arch, counts)
    groups = layer_groups(arch)
    of_layer = {layer: number for number, group in enumerate(groups) for layer in group.layers}
    weights = [group.sizes.layer_parameters(group.mlp) for group in groups]
    for row, stages in enumerate(counts.tolist()):
        ends = np.cumsum([0, *layers_per_stage(arch.num_layers, stages)]).tolist()
        inside = [
            [[of_layer[layer] for layer in range(first, end)].count(n) for n in range(len(groups))]
            for first, end in pairwise(ends)
        ]
        assert [counts[0][row] for counts in found] == inside[0]
        assert [counts[2][row] for counts in found] == inside[-1]
        middle = inside[1:-1] if stages > 2 else inside[-1:]
        heaviest = max(sum(map(int.__mul__, each, weights)) for each in middle)
        own = [int(counts[1][row]) for counts in found]
        assert sum(map(int.__mul__, own, weights)) == heaviest


def test_a_window_takes_its_part_of_attention() -> None:
    lengths = sequence_lengths(workload())
    base = catalogue.architecture("llama-3.2-1b")
    assert attended_weights(base, lengths) is lengths.weights
    half = base.model_copy(update={"sliding_window": 1024})
    assert attended_weights(half, lengths).sum() == pytest.approx(0.75)


def decode_attention(name: str, *cache_lengths: float, **changes: Any) -> list[float]:
    """Seconds of a step's attention at batch 1 by cache length."""
    one, hardware = model(name), pool("h100-80gb-sxm")
    arch = one.architecture.model_copy(update=changes)
    own = type(one)(one.role, arch, one.scalar_head, one.trainable, one.lora_rank)
    context = KernelContext(
        own, hardware, load_profile(hardware.gpu), "bf16", sequence_lengths(workload())
    )
    shapes = EngineShapes(ints(1), ints(1), ints(1))
    lengths = np.array(cache_lengths)
    tables = step_tables(context, shapes, largest_batch=64, cache_lengths=lengths)
    return [float(seconds) for seconds in tables.attention[0, 8]]


def test_decode_steps_read_what_each_kind_caches() -> None:
    short, long = decode_attention("llama-3.2-1b", 4096.0, 65536.0, sliding_window=2048)
    assert short == long
    plain = decode_attention("llama-3.2-1b", 4096.0, 65536.0)
    assert plain[1] > 4 * plain[0] > 4 * short
    # 36 of 48 layers read a state of the same size whatever the context.
    hybrid = decode_attention("qwen3-next-80b-a3b", 1.0, 65536.0)
    state = 2 * 16 * 77_266_944 / (0.9 * 3.35e12)
    assert 0.8 * state < hybrid[0] < 1.5 * state + 12 * 20e-6
    assert hybrid[1] > hybrid[0]
    sparse = decode_attention("deepseek-v3.2", 4096.0, 65536.0)
    dense = decode_attention("deepseek-v3", 4096.0, 65536.0)
    assert sparse[1] < dense[1] / 2.5


@pytest.mark.parametrize(
    "name", ["gemma-3-27b", "qwen3-next-80b-a3b", "nemotron-h-8b", "llama-4-scout", "glm-5.2"]
)
def test_rows_are_priced_alike_alone_and_together(name: str) -> None:
    one, hardware = model(name), pool("h100-80gb-sxm")
    rows = layouts([1, 2, 4, 2], [1, 4, 2, 2], data=[4, 2, 2, 4])
    spec = workload(precision="bf16")

    def seconds(chosen: Any) -> Any:
        size = len(chosen)
        estimates = price_train(
            one,
            call("train"),
            spec,
            hardware,
            load_profile(hardware.gpu),
            chosen,
            micro_batch_size=np.ones(size, dtype=np.int64),
            recompute=np.zeros(size, dtype=np.int64),
        )
        return estimates.seconds.total, estimates.transient.total

    together = seconds(rows)
    for row in range(len(rows)):
        alone = seconds(rows.take(np.array([row])))
        assert alone[0][0] == pytest.approx(together[0][row], rel=1e-12)
        assert alone[1][0] == together[1][row]
    assert np.all(together[0] > 0)


def test_four_bit_weights_of_experts_on_a_latent() -> None:
    """Nemotron-3 Super: 40 layers of 512 experts of 2 × 1024 × 2688."""
    arch = catalogue.architecture("nemotron-3-super-120b-a12b")
    experts = 40 * 512 * 2 * 1024 * 2688
    assert weight_bytes(arch, "bf16")[1] == 2 * experts
    low = weight_bytes(arch, "nvfp4")
    assert low[1] == -(-experts * 9 // 16)
    shard = memory.weight_bytes(model("nemotron-3-super-120b-a12b"), layouts(), precision="nvfp4")
    assert int(shard[0]) == pytest.approx(sum(low), rel=1e-3)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "nemotron-3-nano-30b-a3b", "gemma-4-31b"])
def test_a_job_of_such_a_model_is_planned_and_checked(name: str) -> None:
    """`make_plan` checks every plan, layer by layer; the executor's target refuses the model."""
    models: dict[str, Any] = {role: {"architecture": name} for role in ("actor", "reference")}
    models["reward"] = {"function": True}
    spec = job_spec(
        "grpo",
        models=models,
        cluster={"pools": [{"name": "p", "gpu": "h100", "num_nodes": 4, "gpus_per_node": 8}]},
    )
    plan = make_plan(spec)
    assert plan.iteration_seconds > 0
    assert "automap" not in plan.runs_with
    assert any("automap cannot run this job" in line for line in plan.assumptions)
    assert resolve(spec).models["actor"].architecture == catalogue.architecture(name)
