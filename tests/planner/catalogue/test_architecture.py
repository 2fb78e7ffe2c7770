"""Parameter counts by part against published figures, other people's formulas and each other."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from automap.planner.catalogue import architecture, architectures
from automap.planner.catalogue.architecture import ModelArchitecture

SMALL_DENSE: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 3,
    "vocab_size": 10,
}
SMALL_MOE: dict[str, Any] = SMALL_DENSE | {
    "num_layers": 5,
    "num_experts": 6,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 7,
    "shared_expert_intermediate_size": 5,
    "num_dense_layers": 2,
}


@st.composite
def architecture_sizes(draw: st.DrawFn) -> dict[str, Any]:
    key_value_heads = draw(st.integers(1, 8))
    sizes: dict[str, Any] = {
        "num_layers": draw(st.integers(1, 100)),
        "hidden_size": draw(st.integers(1, 2000)),
        "intermediate_size": draw(st.integers(1, 5000)),
        "num_attention_heads": key_value_heads * draw(st.integers(1, 8)),
        "num_key_value_heads": key_value_heads,
        "head_dim": draw(st.integers(1, 256)),
        "vocab_size": draw(st.integers(1, 10**5)),
        "max_position_embeddings": draw(st.integers(1, 10**5)),
    }
    for flag in (
        "gated_mlp",
        "tied_embeddings",
        "learned_position_embeddings",
        "attention_bias",
        "linear_bias",
        "query_key_norm",
        "norm_bias",
    ):
        sizes[flag] = draw(st.booleans())
    if draw(st.booleans()):
        sizes["num_experts"] = draw(st.integers(1, 64))
        sizes["num_experts_per_token"] = draw(st.integers(1, sizes["num_experts"]))
        sizes["moe_intermediate_size"] = draw(st.integers(1, 2000))
        sizes["shared_expert_intermediate_size"] = draw(st.integers(0, 2000))
        sizes["num_dense_layers"] = draw(st.integers(0, sizes["num_layers"]))
    return sizes


@given(
    st.integers(1, 120),
    st.integers(1, 96),
    st.integers(1, 128),
    st.integers(1, 10**5),
    st.integers(1, 4096),
)
@settings(max_examples=60, deadline=None)
def test_gpt_count_equals_the_formula_of_megatron(
    layers: int, heads: int, head_dim: int, vocabulary: int, positions: int
) -> None:
    """Narayanan et al. 2021 (arXiv:2104.04473), eq. 2: 12lh²(1 + 13/(12h) + (V + s)/(12lh)).

    Their formula leaves out the final norm, 2h here.
    """
    hidden = heads * head_dim
    model = ModelArchitecture(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
        gated_mlp=False,
        tied_embeddings=True,
        learned_position_embeddings=True,
        linear_bias=True,
        norm_bias=True,
    )
    expected = 12 * layers * hidden**2 + 13 * layers * hidden + (vocabulary + positions) * hidden
    assert model.num_parameters() == expected + 2 * hidden


def test_small_dense_model_by_hand() -> None:
    model = ModelArchitecture(**SMALL_DENSE)
    # query 8×12, key and value 8×6 each, output 12×8
    assert model.attention_parameters == 96 + 48 + 48 + 96
    assert model.mlp_parameters == 3 * 8 * 16
    assert model.norm_parameters_per_layer("dense") == 16
    assert model.final_norm_parameters == 8
    assert model.dense_layer_parameters == 288 + 384 + 16
    assert model.embedding_parameters == model.head_parameters == 80
    assert model.position_embedding_parameters == 0
    assert model.num_moe_layers == 0
    assert model.num_parameters() == 80 + 2 * 688 + 8 + 80
    assert model.num_parameters(scalar_head=True) == 80 + 2 * 688 + 8 + 8
    assert model.active_parameters() == model.num_parameters()


def test_small_mixture_of_experts_by_hand() -> None:
    model = ModelArchitecture(**SMALL_MOE)
    assert model.num_moe_layers == 3
    assert model.expert_parameters == 3 * 8 * 7
    assert model.router_parameters == 8 * 6
    assert model.shared_expert_parameters == 3 * 8 * 5
    assert model.layer_parameters("experts") == 288 + 16 + 48 + 6 * 168 + 120
    assert model.num_parameters() == 80 + 2 * 688 + 3 * 1480 + 8 + 80
    assert model.num_parameters() - model.active_parameters() == 3 * 4 * 168


@pytest.mark.parametrize(
    ("flag", "added_per_layer"),
    [
        ("attention_bias", 12 + 6 + 6),
        ("linear_bias", (12 + 6 + 6 + 8) + (16 + 16 + 8)),
        ("query_key_norm", 3 + 3),
        ("norm_bias", 8 + 8),
    ],
)
def test_biases_and_norms_by_hand(flag: str, added_per_layer: int) -> None:
    plain = ModelArchitecture(**SMALL_DENSE)
    changed = ModelArchitecture.model_validate({**SMALL_DENSE, flag: True})
    assert changed.dense_layer_parameters - plain.dense_layer_parameters == added_per_layer


def test_linear_bias_includes_the_attention_bias() -> None:
    one = ModelArchitecture(**SMALL_DENSE, linear_bias=True)
    both = ModelArchitecture(**SMALL_DENSE, linear_bias=True, attention_bias=True)
    assert one.num_parameters() == both.num_parameters()


@given(architecture_sizes())
@settings(max_examples=100, deadline=None)
def test_heads_and_tying_change_only_their_own_part(sizes: dict[str, Any]) -> None:
    tied = ModelArchitecture(**sizes | {"tied_embeddings": True})
    untied = ModelArchitecture(**sizes | {"tied_embeddings": False})
    table = sizes["vocab_size"] * sizes["hidden_size"]
    assert untied.num_parameters() - tied.num_parameters() == table
    assert untied.num_parameters(scalar_head=True) == tied.num_parameters(scalar_head=True)
    assert tied.num_parameters(scalar_head=True) == tied.num_parameters() + sizes["hidden_size"]


@given(architecture_sizes(), st.integers(1, 256))
@settings(max_examples=100, deadline=None)
def test_counts_are_positive_ordered_and_grow(sizes: dict[str, Any], rank: int) -> None:
    model = ModelArchitecture(**sizes)
    assert 0 < model.active_parameters() <= model.num_parameters()
    assert model.lora_parameters(2 * rank) == 2 * model.lora_parameters(rank)
    wider = ModelArchitecture(**sizes | {"intermediate_size": sizes["intermediate_size"] + 1})
    assert wider.num_parameters() >= model.num_parameters()
    more_experts = sizes.get("num_experts", 0) + 1
    if "num_experts" in sizes and model.num_moe_layers:
        larger = ModelArchitecture(**sizes | {"num_experts": more_experts})
        # One more expert costs its weights and a router row, and no token passes its weights.
        assert larger.active_parameters() - model.active_parameters() == (
            model.num_moe_layers * sizes["hidden_size"]
        )


@pytest.mark.parametrize(
    ("name", "trainable"),
    [("llama-2-7b", 39_976_960), ("llama-3.1-8b", 41_943_040), ("qwen2.5-7b", 40_370_176)],
)
def test_lora_counts_equal_what_peft_prints(name: str, trainable: int) -> None:
    """`trainable params` that PEFT prints for rank 16 on the seven projections of each layer."""
    model = architecture(name)
    assert model.lora_parameters(16) == trainable


def test_lora_reaches_every_expert_and_shared_expert_by_hand() -> None:
    model = ModelArchitecture(**SMALL_MOE)
    attention = 2 * (8 + 12) + 2 * (8 + 6)
    dense, moe = 3 * (8 + 16), 6 * 3 * (8 + 7) + 3 * (8 + 5)
    assert model.lora_parameters(1) == 5 * attention + 2 * dense + 3 * moe


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"num_key_value_heads": 3}, ["num_attention_heads=4", "num_key_value_heads=3"]),
        ({"num_experts_per_token": 2}, ["num_experts_per_token=2", "num_experts"]),
        ({"moe_intermediate_size": 9}, ["moe_intermediate_size=9"]),
        ({"num_dense_layers": 1}, ["num_dense_layers=1"]),
    ],
)
def test_inconsistent_dense_sizes_are_refused_with_the_numbers(
    change: dict[str, int], numbers: list[str]
) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelArchitecture(**SMALL_DENSE | change)
    assert all(number in str(caught.value) for number in numbers)


@pytest.mark.parametrize(
    ("change", "numbers"),
    [
        ({"num_experts_per_token": 7}, ["num_experts_per_token=7", "num_experts=6"]),
        ({"num_experts_per_token": 0}, ["num_experts_per_token=0", "num_experts=6"]),
        ({"moe_intermediate_size": 0}, ["moe_intermediate_size", "num_experts=6"]),
        ({"num_dense_layers": 6}, ["num_dense_layers=6", "num_layers=5"]),
    ],
)
def test_inconsistent_experts_are_refused_with_the_numbers(
    change: dict[str, int], numbers: list[str]
) -> None:
    with pytest.raises(ValidationError) as caught:
        ModelArchitecture(**SMALL_MOE | change)
    assert all(number in str(caught.value) for number in numbers)


@pytest.mark.parametrize("size", ["num_layers", "hidden_size", "head_dim", "vocab_size"])
@pytest.mark.parametrize("value", [0, -1, 10**8])
def test_sizes_out_of_range_are_refused(size: str, value: int) -> None:
    with pytest.raises(ValidationError, match=size):
        ModelArchitecture(**SMALL_DENSE | {size: value})


def test_an_architecture_survives_json() -> None:
    for entry in architectures().values():
        text = entry.architecture.model_dump_json()
        assert ModelArchitecture.model_validate_json(text) == entry.architecture
