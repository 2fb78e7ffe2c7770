"""Models that people train now: exact counts, from their files, in the catalogue, in Transformers.

The counts that must be met are of the text tower with its output head, worked out elsewhere; those
of Transformers come from a model without memory, built of the same configuration.
"""

from typing import Any

import pytest

from automap.planner import catalogue
from automap.planner.catalogue.architecture import ModelArchitecture, layer_groups
from automap.planner.catalogue.huggingface import architecture_from_config
from automap.planner.errors import SpecError
from tests.planner.catalogue.current_configs import CURRENT, TEXT_TOWERS

FIELD = "models.actor.architecture"
IN_TRANSFORMERS = {"kimi_k2": "deepseek_v3", "gemma3": "gemma3_text"}
"""What Transformers calls a family whose files have another name."""


def read(config: dict[str, Any]) -> ModelArchitecture:
    return architecture_from_config(config, field=FIELD)


@pytest.mark.parametrize("name", CURRENT)
def test_the_count_of_the_file_is_met_to_the_last_parameter(name: str) -> None:
    parameters, config = CURRENT[name]
    assert read(config).num_parameters() == parameters


@pytest.mark.parametrize("name", CURRENT)
def test_the_catalogue_has_what_the_file_says(name: str) -> None:
    parameters, config = CURRENT[name]
    entry = catalogue.architectures()[name]
    assert entry.architecture == read(config)
    # The weight files of DeepSeek-V3 have 14,848 biases that only balance routing.
    balancing = 14_848 if name == "deepseek-v3" else 0
    assert entry.published_parameters == parameters + balancing


@pytest.mark.parametrize("name", TEXT_TOWERS)
def test_text_towers_have_the_sizes_of_a_language_model(name: str) -> None:
    base, parameters = TEXT_TOWERS[name]
    tower = catalogue.architecture(name)
    assert tower.num_parameters() == parameters
    same = {"max_position_embeddings", "approximation"}
    assert tower.model_dump(exclude=same) == catalogue.architecture(base).model_dump(exclude=same)


@pytest.mark.slow
@pytest.mark.parametrize("name", CURRENT)
def test_transformers_counts_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    parameters, config = CURRENT[name]
    text = dict(config.get("text_config", config))
    family = text.pop("model_type")
    kind = transformers.models.auto.configuration_auto.CONFIG_MAPPING[
        IN_TRANSFORMERS.get(family, family)
    ]
    own = kind(**text, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(own)
    counted = sum(weight.numel() for weight in model.parameters())
    assert counted == parameters == read(config).num_parameters()


@pytest.mark.parametrize(
    ("name", "pattern", "kinds"),
    [
        ("gemma-2-9b", "sF", {"s": 21, "F": 21}),
        ("gemma-3-27b", "sssssF", {"s": 52, "F": 10}),
        ("olmo-3-7b", "sssF", {"s": 24, "F": 8}),
        ("gpt-oss-120b", "sF", {"s": 18, "F": 18}),
        ("qwen3-next-80b-a3b", "lllF", {"l": 36, "F": 12}),
        ("llama-4-scout", "CCCF", {"C": 36, "F": 12}),
        ("llama-4-maverick", "cCcF", {"c": 24, "C": 12, "F": 12}),
        ("deepseek-v3.2", "", {}),
    ],
)
def test_layers_by_kind(name: str, pattern: str, kinds: dict[str, int]) -> None:
    model = catalogue.architecture(name)
    assert model.layer_pattern == pattern
    letters = [kind.letter for kind in model.layer_kinds]
    groups = layer_groups(model)
    if kinds:
        counts = [group.num_layers for group in groups]
        assert dict(zip(letters, counts, strict=True)) == kinds
    places = sorted(layer for group in groups for layer in group.layers)
    assert places == list(range(model.num_layers))


def test_indexers_that_layers_share() -> None:
    """GLM-5.2 has 21 indexers in 78 layers, in the first three and then every fourth."""
    model = catalogue.architecture("glm-5.2")
    own = [group for group in layer_groups(model) if group.sizes.has_indexer]
    assert sum(group.num_layers for group in own) == 21
    listed = ["full" if letter in "DE" else "shared" for letter in model.layer_pattern]
    config = CURRENT["glm-5.2"][1]
    without = {k: v for k, v in config.items() if not k.startswith(("index_topk_f", "index_skip"))}
    assert read(without | {"indexer_types": listed}) == model


def test_patterns_are_read_as_lists_too() -> None:
    config = CURRENT["nemotron-3-nano-30b-a3b"][1]
    words = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    listed = [words[letter] for letter in config["hybrid_override_pattern"]]
    without = {k: v for k, v in config.items() if k != "hybrid_override_pattern"}
    assert read(without | {"layers_block_type": listed}) == read(config)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types has 1 entries"),
        ("gpt-oss-20b", {"layer_types": ["mystery"] * 24}, "layer_types is"),
        ("nemotron-h-8b", {"hybrid_override_pattern": None}, "hybrid_override_pattern is missing"),
        ("nemotron-h-8b", {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern is 'MX'"),
        ("nemotron-h-8b", {"num_hidden_layers": 7}, "num_hidden_layers is 7"),
        ("deepseek-v2", {"kv_lora_rank": 0}, "kv_lora_rank is 0"),
        ("qwen3-next-80b-a3b", {"mlp_only_layers": [3]}, "not supported"),
    ],
)
def test_contradictory_files_are_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(CURRENT[name][1] | change)
    assert message in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layer_pattern": "sFx"}, "layer_pattern"),
        ({"layer_pattern": ""}, "layer_pattern"),
        ({"layer_pattern": "sF" * 30}, "layer_pattern"),
        ({"layer_kinds": []}, "layer_pattern"),
        ({"layer_kinds": [{"letter": "s"}, {"letter": "s"}]}, "layer_pattern"),
        ({"layer_kinds": [{"letter": "s", "mixer": "mamba2"}, {"letter": "F"}]}, "mamba2"),
        ({"layer_kinds": [{"letter": "s", "mlp": "experts"}, {"letter": "F"}]}, "layer_kinds.s"),
        (
            {"layer_kinds": [{"letter": "s", "num_key_value_heads": 3}, {"letter": "F"}]},
            "layer_kinds.s",
        ),
        (
            {"layer_kinds": [{"letter": "s", "mixer": "none", "mlp": "none"}, {"letter": "F"}]},
            "layer_kinds.s",
        ),
        ({"indexer": {"index_n_heads": 4, "index_head_dim": 8, "index_topk": 16}}, "indexer"),
    ],
)
def test_kinds_that_cannot_be_are_refused(change: dict[str, Any], field: str) -> None:
    sizes = catalogue.architecture("gemma-2-2b").model_dump(mode="json")
    assert ModelArchitecture.model_validate(sizes) == catalogue.architecture("gemma-2-2b")
    with pytest.raises(ValueError, match=field):
        ModelArchitecture.model_validate(sizes | change)


def test_sizes_of_plain_models_are_written_as_short_as_before() -> None:
    written = catalogue.architecture("llama-3.1-8b").model_dump(mode="json")
    assert "layer_kinds" not in written
    assert "mixer" not in written
    assert catalogue.architecture("gemma-2-2b").model_dump()["layer_pattern"] == "sF"
