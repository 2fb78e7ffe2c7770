"""What readers of several model families have in common: attention, experts, kinds of layers.

A missing key takes a default only where the family's configuration class in transformers documents
that default and it holds for the family's published models; anything else is an error that names
the key. Keys that change no sizes (rope, dropout, token ids) are not read.
Source: the configuration classes of transformers 4 and 5.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from automap.planner.catalogue.architecture import MAX_LAYERS, ModelArchitecture
from automap.planner.catalogue.config_reader import ConfigReader
from automap.planner.catalogue.layer_kinds import LayerKind

MIXERS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")
"""Words of `layer_types` that are read."""


def decoder(
    reader: ConfigReader,
    *,
    notes: Sequence[str] = (),
    tied: bool = False,
    **sizes: Any,
) -> ModelArchitecture:
    """A model with rotary positions and RMSNorm: all families but the GPTs.

    `sizes` are fields of ModelArchitecture; all models have the others read here under the same
    keys. `tied` is the documented default of `tie_word_embeddings`.
    """
    found = {
        "num_layers": num_layers(reader),
        "hidden_size": reader.size("hidden_size"),
        "num_attention_heads": reader.size("num_attention_heads"),
        "vocab_size": reader.size("vocab_size"),
        "max_position_embeddings": reader.size("max_position_embeddings"),
        "tied_embeddings": reader.flag("tie_word_embeddings", default=tied),
        **sizes,
    }
    if "intermediate_size" not in found:
        found["intermediate_size"] = reader.size("intermediate_size")
    found["approximation"] = "; ".join([*notes, *left_out(reader)])
    return ModelArchitecture.model_validate(found)


def left_out(reader: ConfigReader) -> list[str]:
    """What a file describes besides the decoder whose parameters count."""
    found = []
    if reader.optional_count("num_nextn_predict_layers"):
        found.append("the multi-token prediction module is left out")
    return found


def num_layers(reader: ConfigReader) -> int:
    """The layers of the decoder."""
    return reader.size("num_hidden_layers", maximum=MAX_LAYERS)


def grouped_heads(reader: ConfigReader) -> dict[str, Any]:
    """Key-value heads, and the size of a head."""
    return {"num_key_value_heads": key_value_heads(reader), "head_dim": head_dim(reader)}


def key_value_heads(reader: ConfigReader) -> int:
    """`num_key_value_heads`; null says as many as attention heads."""
    # transformers reads null so, but gives a missing key a default of 8 or 32 that depends on the
    # family and fits few models: missing is an error.
    if "num_key_value_heads" in reader.config and reader.config["num_key_value_heads"] is None:
        return reader.size("num_attention_heads")
    return reader.size("num_key_value_heads")


def head_dim(reader: ConfigReader) -> int:
    """`head_dim` where given, else hidden_size ÷ num_attention_heads, which must divide."""
    given = reader.optional_size("head_dim")
    if given is not None:
        return given
    return divided_head_dim(reader, hidden="hidden_size", heads="num_attention_heads")


def divided_head_dim(reader: ConfigReader, *, hidden: str, heads: str) -> int:
    """Size of a head where the hidden size is divided among them."""
    hidden_size, num_heads = reader.size(hidden), reader.size(heads)
    if hidden_size % num_heads:
        reader.contradiction(
            f"{hidden}={hidden_size} is not a multiple of {heads}={num_heads}",
            remedy="correct one of the two",
        )
    return max(hidden_size // num_heads, 1)


def window(reader: ConfigReader) -> int:
    """`sliding_window`, or 0 where it is no limit."""
    given = reader.optional_size("sliding_window")
    return 0 if given is None or given >= reader.size("max_position_embeddings") else given


def layer_types(reader: ConfigReader, *, full_every: int) -> list[str]:
    """What each layer attends with: `layer_types`, else every `full_every`-th layer in full."""
    layers = num_layers(reader)
    given = reader.words("layer_types", known=MIXERS)
    if not given:
        return [
            "full_attention" if (layer + 1) % full_every == 0 else "sliding_attention"
            for layer in range(layers)
        ]
    if len(given) != layers:
        reader.contradiction(
            f"layer_types has {len(given)} entries for num_hidden_layers={layers}",
            remedy="correct one of the two",
        )
    return given


def sliding_kinds(
    reader: ConfigReader, *, full_every: int, full: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Layers with a sliding window between layers with full attention.

    `full`: in what the full ones differ besides.
    """
    size = window(reader)
    words = layer_types(reader, full_every=full_every)
    if not size and not full:
        return {}
    letters = ["F" if word == "full_attention" else "s" for word in words]
    kinds = {"s": {"sliding_window": size}, "F": dict(full or {})}
    return kinds_of(letters, kinds)


def kinds_of(letters: Sequence[str], kinds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Fields `layer_kinds` and `layer_pattern` of a model with such layers, in order."""
    used = [
        LayerKind.model_validate({"letter": letter, **kind})
        for letter, kind in kinds.items()
        if letter in letters
    ]
    return {"layer_kinds": tuple(used), "layer_pattern": shortest_pattern("".join(letters))}


def shortest_pattern(letters: str) -> str:
    """The shortest beginning of a text whose repetition is the text."""
    for size in range(1, len(letters)):
        if all(letters[i] == letters[i - size] for i in range(size, len(letters))):
            return letters[:size]
    return letters


def experts_in(sparse: Sequence[bool]) -> dict[str, Any]:
    """Which layers have experts: leading ones without, or a pattern of both."""
    dense = len(sparse) - sum(sparse)
    if not any(sparse[:dense]):
        return {"num_dense_layers": dense}
    letters = ["E" if each else "D" for each in sparse]
    return kinds_of(letters, {"D": {"mlp": "dense"}, "E": {"mlp": "experts"}})
