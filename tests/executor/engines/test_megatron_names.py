"""Which Hugging Face tensors lie where in Megatron's parameters; pure arithmetic, no processes."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from automap.executor.engines.megatron.architecture import Architecture
from automap.executor.engines.megatron.checkpoint import rectangles
from automap.executor.engines.megatron.configuration import build_configuration, stage_layers
from automap.executor.engines.megatron.names import NameMap
from automap.executor.engines.training_engine import Head
from automap.executor.layout import RankLayout
from tests.executor.engines.plain_training import tiny_config

PARAMETERS = (
    "embedding.word_embeddings.weight",
    *(
        f"decoder.layers.{layer}.{rest}"
        for layer in range(2)
        for rest in (
            "input_layernorm.weight",
            "self_attention.linear_qkv.weight",
            "self_attention.linear_proj.weight",
            "pre_mlp_layernorm.weight",
            "mlp.linear_fc1.weight",
            "mlp.linear_fc2.weight",
        )
    ),
    "decoder.final_layernorm.weight",
    "output_layer.weight",
)


def megatron_shards(
    full: dict[str, Tensor], names: NameMap, vocab_rows: int
) -> dict[str, list[Tensor]]:
    """Shards of tensor ranks, made as Megatron lays them out, head by head and rank by rank."""
    size, own = names.layout.tensor_parallel_size, names.architecture
    groups = own.num_key_value_heads

    def fused_attention(layer: str) -> list[Tensor]:
        rows = []
        for group in range(groups):
            for projection in "qkv":
                whole = full[f"{layer}.self_attn.{projection}_proj.weight"]
                rows.append(np.split(whole.numpy(), groups)[group])
        return [torch.from_numpy(each) for each in np.split(np.concatenate(rows), size)]

    def gated(layer: str) -> list[Tensor]:
        gate, up = (full[f"{layer}.mlp.{each}_proj.weight"] for each in ("gate", "up"))
        return [torch.cat(pair) for pair in zip(gate.chunk(size), up.chunk(size), strict=True)]

    def vocabulary(name: str) -> list[Tensor]:
        padded = torch.full((vocab_rows, own.hidden_size), -7.0)
        padded[: own.vocab_size] = full[name]
        return list(padded.chunk(size))

    shards = {
        "embedding.word_embeddings.weight": vocabulary("model.embed_tokens.weight"),
        "output_layer.weight": vocabulary("lm_head.weight"),
        "decoder.final_layernorm.weight": [full["model.norm.weight"]] * size,
    }
    for number in range(own.num_layers):
        layer, ours = f"model.layers.{number}", f"decoder.layers.{number}"
        norms = (
            ("input_layernorm", "input_layernorm"),
            ("pre_mlp_layernorm", "post_attention_layernorm"),
        )
        for our, their in norms:
            shards[f"{ours}.{our}.weight"] = [full[f"{layer}.{their}.weight"]] * size
        shards[f"{ours}.self_attention.linear_qkv.weight"] = fused_attention(layer)
        shards[f"{ours}.mlp.linear_fc1.weight"] = gated(layer)
        for our, their in (
            ("self_attention.linear_proj", "self_attn.o_proj"),
            ("mlp.linear_fc2", "mlp.down_proj"),
        ):
            whole = full[f"{layer}.{their}.weight"]
            shards[f"{ours}.{our}.weight"] = list(whole.chunk(size, dim=1))
    return shards


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("vocab_size", [250, 256])
def test_pieces_put_the_hugging_face_tensors_together(size: int, vocab_size: int) -> None:
    architecture = Architecture.of(tiny_config("llama", vocab_size=vocab_size))
    names = NameMap(architecture, "language_model", RankLayout(tensor_parallel_size=size))
    assert architecture.padded_vocab_size(size) == 256
    generator = torch.Generator().manual_seed(0)
    shapes = hugging_face_shapes(vocab_size)
    full = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    shards = megatron_shards(full, names, 256)
    assert set(shards) == set(PARAMETERS)
    built = {name: torch.full(shape, torch.nan) for name, shape in shapes.items()}
    for name, parts in shards.items():
        for rank, shard in enumerate(parts):
            for piece in names.pieces(name, shard, tensor_rank=rank):
                assert piece.full_shape == shapes[piece.name]
                assert piece.view.untyped_storage().data_ptr() == shard.untyped_storage().data_ptr()
                target = built[piece.name].narrow(piece.dim, piece.start, piece.size)
                assert names.split_dimension(name) is None or target.isnan().all()
                target.copy_(piece.view.reshape(piece.shape))
    for name, tensor in full.items():
        assert built[name].equal(tensor), name


def hugging_face_shapes(vocab_size: int) -> dict[str, tuple[int, ...]]:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config("llama", vocab_size=vocab_size))
    return {name: tuple(each.shape) for name, each in model.state_dict().items()}


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("scalar", "output_layer.weight"),
        ("language_model", "score.weight"),
        ("language_model", "decoder.layers.0.self_attention.linear_kv.weight"),
        ("language_model", "decoder.layers.0.mlp.linear_fc3.weight"),
        ("language_model", "lm_head.weight"),
    ],
)
def test_a_parameter_that_the_model_lacks(head: Head, name: str) -> None:
    names = NameMap(Architecture.of(tiny_config("llama")), head, RankLayout())
    with pytest.raises(KeyError, match="no parameter"):
        names.pieces(name, torch.zeros(2), tensor_rank=0)


def test_the_tied_head_is_a_copy_of_the_embedding() -> None:
    layout = RankLayout(tensor_parallel_size=2)
    names = NameMap(Architecture.of(tiny_config("qwen2")), "language_model", layout)
    shard = torch.zeros(128, 64)
    (piece,) = names.pieces("output_layer.weight", shard, tensor_rank=1)
    assert (piece.name, piece.start, piece.size) == ("model.embed_tokens.weight", 128, 128)
    assert names.is_copy("output_layer.weight")
    assert not names.is_copy("embedding.word_embeddings.weight")


def test_a_vocabulary_too_small_for_the_ranks() -> None:
    architecture = Architecture.of(tiny_config("llama", vocab_size=9))
    assert architecture.padded_vocab_size(1) == 16
    with pytest.raises(ValueError, match="vocab_size 9 is too small for tensor_parallel_size 4"):
        architecture.padded_vocab_size(4)


@pytest.mark.parametrize(
    ("layers", "count", "counts"),
    [
        (8, 2, [4, 4]),
        (7, 2, [4, 3]),
        (10, 4, [2, 3, 3, 2]),
        (11, 4, [3, 3, 3, 2]),
        (9, 4, [2, 3, 3, 1]),
        (5, 1, [5]),
    ],
)
def test_layers_of_stages(layers: int, count: int, counts: list[int]) -> None:
    """As the planner counts them: the ends share what equal middle stages leave."""
    found = stage_layers(layers, count)
    names = [[each.name for each in chunk] for chunk in found]
    assert [chunk.count("decoder") for chunk in names] == counts
    assert names[0][0] == "embedding"
    assert names[-1][-1] == "loss"


@pytest.mark.parametrize("shape", [(7,), (1, 5), (4, 1), (3, 4), (5, 7)])
def test_rectangles_of_a_range(shape: tuple[int, ...]) -> None:
    """Any range of a flattened tensor, covered exactly once and in order."""
    numbers = torch.arange(torch.Size(shape).numel()).view(shape)
    for start, stop in itertools.combinations(range(numbers.numel() + 1), 2):
        found = rectangles(shape, start, stop)
        assert len(found) <= 3
        values = [
            numbers[tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))]
            for offsets, sizes in found
        ]
        assert torch.cat([each.flatten() for each in values]).tolist() == list(range(start, stop))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; the megatron engine knows silu"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1.0}},
            "rope_type is 'dynamic'",
        ),
        ({"layer_types": ["sliding_attention", "full_attention"]}, "layer_types is"),
    ],
)
def test_a_model_that_the_engine_does_not_know(changes: dict[str, object], message: str) -> None:
    config = tiny_config("llama")
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=message):
        Architecture.of(config)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"tensor_parallel_size": 3}, "num_attention_heads 4 must be a multiple of .* 3"),
        ({"tensor_parallel_size": 8}, "num_attention_heads 4 must be a multiple of .* 8"),
        ({"context_parallel_size": 2}, "context_parallel_size must be 1, got 2"),
        (
            {"data_parallel_size": 2, "expert_parallel_size": 2},
            "expert_parallel_size must be 1 for a dense model, got 2",
        ),
        ({"pipeline_parallel_size": 3}, "pipeline_parallel_size 3 .* exceeds num_layers 2"),
    ],
)
def test_sizes_that_do_not_go_with_the_model(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_configuration(
            Architecture.of(tiny_config("llama")),
            RankLayout(**sizes),
            precision="fp32",
            recompute="none",
            sequence_parallel=True,
            virtual_pipeline_parallel_size=1,
        )
