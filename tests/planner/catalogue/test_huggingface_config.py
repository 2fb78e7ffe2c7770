"""Sizes read from config.json files: those of public models, and every way a file can be wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from automap.planner.catalogue import architecture
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.huggingface import (
    MAX_CONFIG_BYTES,
    architecture_from_config,
    load_config,
)
from automap.planner.errors import SpecError
from tests.planner.catalogue.huggingface_configs import (
    CONFIGS,
    DEEPSEEK_V3,
    GPT2,
    GPT_NEOX_20B,
    LLAMA_3_1_8B,
    MISTRAL_7B,
    QWEN1_5_MOE,
    QWEN2_5_0_5B,
    QWEN3_30B_A3B,
    QWEN3_32B,
)

FIELD = "models.actor.architecture"


def read(config: dict[str, Any]) -> ModelArchitecture:
    return architecture_from_config(config, field=FIELD)


def refusal(config: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read(config)
    assert caught.value.field == FIELD
    assert caught.value.remedy
    return caught.value


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: value for k, value in config.items() if k != key}


@pytest.mark.parametrize(("name", "config"), CONFIGS.items())
def test_public_configs_give_the_catalogue_s_sizes(name: str, config: dict[str, Any]) -> None:
    assert read(config) == architecture(name)


def test_qwen_moe_with_a_shared_expert() -> None:
    """Qwen1.5-MoE-A2.7B: 14.3B parameters, 2.7B of them active (its model card)."""
    model = read(QWEN1_5_MOE)
    assert model.num_parameters() == pytest.approx(14.3e9, rel=0.005)
    assert model.active_parameters() == pytest.approx(2.7e9, rel=0.02)
    plain = model.model_copy(update={"shared_expert_gate": False})
    assert model.num_parameters() - plain.num_parameters() == 24 * 2048
    assert model.approximation == ""


@pytest.mark.parametrize(
    ("change", "num_dense_layers", "lies_between"),
    [
        ({"mlp_only_layers": [0, 1, 2]}, 3, False),
        ({"mlp_only_layers": [0, 47]}, 2, True),
        ({"decoder_sparse_step": 2}, 24, True),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, 25, True),
        ({"mlp_only_layers": None, "decoder_sparse_step": None}, 0, False),
        ({"mlp_only_layers": list(range(48))}, 48, False),
    ],
)
def test_layers_without_experts(
    change: dict[str, Any], num_dense_layers: int, lies_between: bool
) -> None:
    model = read(QWEN3_30B_A3B | change)
    assert model.num_dense_mlp_layers == num_dense_layers
    assert model.num_moe_layers == 48 - num_dense_layers
    assert bool(model.layer_kinds) == lies_between
    assert model.num_dense_layers == (0 if lies_between else num_dense_layers)
    assert model.approximation == ""


def test_deepseek_layers_and_latent_attention() -> None:
    assert read(DEEPSEEK_V3 | {"first_k_dense_replace": 0}).num_dense_layers == 0
    assert read(DEEPSEEK_V3 | {"n_shared_experts": 2}).shared_expert_intermediate_size == 4096
    every_second = read(DEEPSEEK_V3 | {"moe_layer_freq": 2})
    assert every_second.num_moe_layers == 29  # layers 4, 6, … 60
    full_query = read(DEEPSEEK_V3 | {"q_lora_rank": None})
    low_rank = read(DEEPSEEK_V3)
    added = full_query.attention_parameters - low_rank.attention_parameters
    assert added == 7168 * 24576 - (7168 * 1536 + 1536 + 1536 * 24576)


def test_documented_defaults() -> None:
    heads = read(without(LLAMA_3_1_8B, "num_key_value_heads")).num_key_value_heads
    assert heads == 32
    assert read(QWEN2_5_0_5B | {"num_key_value_heads": None}).num_key_value_heads == 14
    assert read(without(LLAMA_3_1_8B, "tie_word_embeddings")).tied_embeddings is False
    assert read(GPT2).tied_embeddings is True
    assert read(GPT2 | {"n_inner": None}).intermediate_size == 3072
    assert read(GPT2 | {"n_inner": 1000}).intermediate_size == 1000
    assert read(MISTRAL_7B | {"head_dim": None}).head_dim == 128


def test_biases_and_windows() -> None:
    both = read(LLAMA_3_1_8B | {"attention_bias": True, "mlp_bias": True})
    assert both.linear_bias
    assert both.approximation == ""
    one = read(LLAMA_3_1_8B | {"attention_bias": True})
    assert one.attention_bias
    assert one.attention_output_bias
    assert one.approximation == ""
    assert "MLP" in read(LLAMA_3_1_8B | {"mlp_bias": True}).approximation
    assert read(MISTRAL_7B).sliding_window == 4096
    assert read(MISTRAL_7B | {"sliding_window": None}).sliding_window == 0
    assert read(MISTRAL_7B | {"sliding_window": 32768}).sliding_window == 0
    window = {"use_sliding_window": True, "sliding_window": 4096}
    assert read(QWEN2_5_0_5B | window).layer_kinds == ()  # max_window_layers is all layers
    later = read(QWEN2_5_0_5B | window | {"max_window_layers": 20})
    assert later.layer_pattern == "F" * 20 + "s" * 4
    assert "biases" in read(GPT_NEOX_20B | {"attention_bias": False}).approximation


REQUIRED = {
    "llama-3.1-8b": ["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"],
    "llama-3.2-1b": ["num_attention_heads", "max_position_embeddings"],
    "mistral-7b": ["num_key_value_heads"],
    "qwen2.5-0.5b": ["num_key_value_heads"],
    "qwen3-32b": ["head_dim", "num_key_value_heads"],
    "qwen3-30b-a3b": ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "head_dim"],
    "mixtral-8x7b": ["num_local_experts", "num_experts_per_tok", "intermediate_size"],
    "gpt2": ["n_embd", "n_layer", "n_head", "n_positions", "vocab_size"],
    "gpt-neox-20b": ["intermediate_size", "num_attention_heads"],
    "deepseek-v3": ["n_routed_experts", "n_shared_experts", "kv_lora_rank", "v_head_dim"],
}


@pytest.mark.parametrize(
    ("name", "key"), [(n, key) for n, keys in REQUIRED.items() for key in keys]
)
def test_missing_keys_are_named_with_file_and_remedy(name: str, key: str) -> None:
    error = refusal(without(CONFIGS[name], key))
    assert f"config.json: {key} is missing" in error.message
    assert key in error.remedy
    assert "whole number" in error.remedy


@pytest.mark.parametrize("name", CONFIGS)
def test_everything_that_is_missing_is_told_at_once_with_the_file(name: str) -> None:
    model_type = CONFIGS[name]["model_type"]
    error = refusal({"model_type": model_type})
    assert error.message.startswith("config.json: ")
    assert " are missing" in error.message
    for key in REQUIRED.get(name, []):
        assert key in error.message
        assert key in error.remedy
    # What is told is enough: with these keys, and no others, the file is read.
    told = error.message.removeprefix("config.json: ").removesuffix(" are missing")
    keys = told.replace(" and ", ", ").split(", ")
    given = {key: CONFIGS[name][key] for key in keys if key in CONFIGS[name]}
    assert architecture_from_config({"model_type": model_type, **given}, field=FIELD)


def test_missing_null_and_wrong_keys_are_told_together() -> None:
    broken = without(LLAMA_3_1_8B, "vocab_size") | {
        "hidden_size": None,
        "intermediate_size": "a",
        "num_attention_heads": -5,
        "tie_word_embeddings": "no",
    }
    error = refusal(broken)
    for told in (
        "vocab_size is missing",
        "hidden_size is null",
        "intermediate_size is 'a'",
        "num_attention_heads is -5",
        "tie_word_embeddings is 'no'",
    ):
        assert told in error.message
    assert "tie_word_embeddings must be true or false" in error.remedy
    assert "num_attention_heads and intermediate_size must each be a whole number" in error.remedy


@pytest.mark.parametrize(
    "value",
    [
        -1,
        0,
        4096.0,
        "4096",
        True,
        [4096],
        {},
        None,
        10**8,
        pytest.param(10**5000, id="huge"),
        float("nan"),
    ],
)
def test_values_that_are_no_size_are_refused(value: object) -> None:
    error = refusal(LLAMA_3_1_8B | {"vocab_size": value})
    assert "config.json: vocab_size is" in error.message
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("config", "change", "named"),
    [
        (LLAMA_3_1_8B, {"hidden_size": 4097}, "hidden_size=4097 is not a multiple"),
        (LLAMA_3_1_8B, {"num_key_value_heads": 5}, "num_key_value_heads=5"),
        (LLAMA_3_1_8B, {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        (LLAMA_3_1_8B, {"num_hidden_layers": 10**7}, "num_hidden_layers"),
        (GPT2, {"n_embd": 770}, "n_embd=770 is not a multiple of n_head=12"),
        (QWEN3_30B_A3B, {"num_experts_per_tok": 129}, "num_experts_per_token=129"),
        (QWEN3_30B_A3B, {"mlp_only_layers": "0"}, "mlp_only_layers"),
        (QWEN3_30B_A3B, {"mlp_only_layers": [-1]}, "mlp_only_layers"),
        (QWEN3_30B_A3B, {"mlp_only_layers": [True]}, "mlp_only_layers"),
        (QWEN3_30B_A3B, {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        (DEEPSEEK_V3, {"first_k_dense_replace": -1}, "first_k_dense_replace"),
    ],
)
def test_values_at_odds_are_refused_with_the_numbers(
    config: dict[str, Any], change: dict[str, Any], named: str
) -> None:
    assert named in refusal(config | change).message


@pytest.mark.parametrize(
    "model_type",
    [None, "bert", "t5", "deepseek_v4", 7, ["llama"], {}, pytest.param("x" * 10**6, id="long")],
)
def test_unsupported_model_types_list_the_supported_ones(model_type: object) -> None:
    error = refusal(LLAMA_3_1_8B | {"model_type": model_type})
    assert "model_type" in error.message
    assert all(name in error.remedy for name in ("llama", "qwen3_moe", "gpt_neox", "deepseek_v3"))
    assert len(str(error)) < 1500


def test_an_unsupported_model_type_is_answered_with_sizes_to_complete() -> None:
    """What is filled in is enough for a plain model; what is not is told."""
    remedy = refusal(QWEN3_30B_A3B | {"model_type": "mystery"}).remedy
    block = yaml.safe_load("{" + remedy.partition("completing: ")[2].partition("; it")[0] + "}")
    known = architecture("qwen3-30b-a3b").model_copy(update={"query_key_norm": False})
    assert ModelArchitecture.model_validate(block["architecture"]) == known

    other = {"model_type": "mystery", "d_model": 4096, "n_heads": 32, "layer_types": ["x"]}
    remedy = refusal(other).remedy
    assert 'num_layers: "?", hidden_size: 4096' in remedy
    assert "head_dim: 128" in remedy
    assert "experts" not in remedy.partition("completing: ")[2]
    assert "layer_types say" in remedy


def test_an_empty_config_lists_the_supported_types() -> None:
    assert "no model_type" in refusal({}).message


def test_a_file_and_its_folder_read_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN3_32B))
    assert load_config(file, field=FIELD) == load_config(tmp_path, field=FIELD)
    assert load_config(str(file)) == architecture("qwen3-32b")


def test_a_missing_key_names_the_file_it_is_missing_from(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(without(QWEN3_32B, "vocab_size")))
    with pytest.raises(SpecError, match=r"mine\.json: vocab_size is missing"):
        load_config(file, field=FIELD)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[1, 2]", "no JSON object"),
        (b"null", "no JSON object"),
        (b" " * (MAX_CONFIG_BYTES + 1), "larger than"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_config(file, field=FIELD)
    assert caught.value.field == FIELD
    assert reason in caught.value.message


def test_paths_that_are_no_file_are_refused(tmp_path: Path) -> None:
    long = Path("x" * 10**5)
    for path in (tmp_path / "none.json", tmp_path, Path("/dev/zero"), Path("a\0b"), long):
        with pytest.raises(SpecError) as caught:
            load_config(path, field=FIELD)
        assert caught.value.field == FIELD
        assert len(str(caught.value)) < 500
