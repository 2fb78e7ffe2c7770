"""The sizes of a neural network and what follows from them: its layers, and all its parameters.

A model is its layers, an embedding and a head. Layers are alike but for leading ones without
experts, or they are of several kinds in a pattern. layer_sizes.py counts the parameters of one.
The counts are checked against published ones in tests/planner/catalogue/test_catalogue.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from automap.planner.catalogue.layer_kinds import Count, LayerKind, Mlp, Size
from automap.planner.catalogue.layer_sizes import RARE, LayerSizes
from automap.planner.errors import FieldValueError

MAX_LAYERS = 10_000


class ModelArchitecture(LayerSizes):
    """A decoder: dense or mixture of experts, with layers of one kind or of several.

    Field names are those of Hugging Face configs where they agree among themselves.
    """

    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)]
    vocab_size: Size
    max_position_embeddings: Size = 4096
    tied_embeddings: bool = False
    """The output head is the embedding table."""
    learned_position_embeddings: bool = False
    num_dense_layers: Count = 0
    """Leading layers without experts in a mixture-of-experts model."""
    layer_kinds: Annotated[tuple[LayerKind, ...], Field(strict=False), RARE] = ()
    """What layers there are where they are not alike; empty: all are as the sizes say."""
    layer_pattern: Annotated[str, Field(max_length=MAX_LAYERS), RARE] = ""
    """Letters of `layer_kinds` in the order of the layers; repeated to the last layer."""
    approximation: Annotated[str, Field(max_length=1000)] = ""
    """What is approximated, in words; empty when nothing is."""
    kind: Literal["decoder"] = "decoder"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise FieldValueError(
                "num_attention_heads",
                f"num_attention_heads={self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads={self.num_key_value_heads}",
                remedy="every key-value head serves as many query heads",
            )
        if self.num_experts:
            self._check_experts()
        else:
            self._check_no_experts()
        _check_mixer(self)
        _check_kinds(self)
        return self

    def _check_experts(self) -> None:
        if not 1 <= self.num_experts_per_token <= self.num_experts:
            raise FieldValueError(
                "num_experts_per_token",
                f"num_experts_per_token={self.num_experts_per_token} of "
                f"num_experts={self.num_experts}",
                remedy=f"use a number from 1 to {self.num_experts}",
            )
        if self.moe_intermediate_size == 0:
            raise FieldValueError(
                "moe_intermediate_size",
                f"num_experts={self.num_experts} needs it, and it is 0 or missing",
                remedy="give the width of one expert",
            )
        if self.num_dense_layers > self.num_layers:
            raise FieldValueError(
                "num_dense_layers",
                f"num_dense_layers={self.num_dense_layers} exceeds num_layers={self.num_layers}",
                remedy=f"use at most {self.num_layers}",
            )

    def _check_no_experts(self) -> None:
        expert_fields = {
            "num_experts_per_token": self.num_experts_per_token,
            "moe_intermediate_size": self.moe_intermediate_size,
            "shared_expert_intermediate_size": self.shared_expert_intermediate_size,
            "num_dense_layers": self.num_dense_layers,
            "expert_latent_size": self.expert_latent_size,
        }
        given = {name: value for name, value in expert_fields.items() if value}
        if given:
            listed = ", ".join(f"{name}={value}" for name, value in given.items())
            raise FieldValueError(
                next(iter(given)),
                f"{listed} without num_experts",
                remedy="give num_experts, or leave them out of a dense model",
            )

    @property
    def num_moe_layers(self) -> int:
        """Layers with routed experts; 0 in a dense model."""
        return _layers_with(self, "experts")

    @property
    def num_dense_mlp_layers(self) -> int:
        """Layers with a dense MLP."""
        return _layers_with(self, "dense")

    @property
    def final_norm_parameters(self) -> int:
        """The norm after the last layer."""
        return self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """The token embedding table: v·h."""
        return self.vocab_size * self.hidden_size

    @property
    def position_embedding_parameters(self) -> int:
        """The learned position table: max_position_embeddings·h; 0 with rotary positions."""
        if not self.learned_position_embeddings:
            return 0
        return self.max_position_embeddings * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Output head of its own: h·v; 0 when it shares the embedding table."""
        return 0 if self.tied_embeddings else self.hidden_size * self.vocab_size

    @property
    def scalar_head_parameters(self) -> int:
        """Head of a critic, reward or cost model: one output per token, h weights."""
        return self.hidden_size

    def num_parameters(self, scalar_head: bool = False) -> int:
        """All parameters; with `scalar_head` the vocabulary head gives way to one output."""
        layers = sum(
            group.num_layers * group.sizes.layer_parameters(group.mlp)
            for group in layer_groups(self)
        )
        return (
            self.embedding_parameters
            + self.position_embedding_parameters
            + layers
            + self.final_norm_parameters
            + (self.scalar_head_parameters if scalar_head else self.head_parameters)
        )

    def active_parameters(self) -> int:
        """Parameters one token passes: all but the routed experts it is not sent to.

        The embedding table counts whole, as in the published counts of active parameters.
        """
        idle_experts = self.num_experts - self.num_experts_per_token
        idle = self.num_moe_layers * idle_experts * self.expert_parameters
        return self.num_parameters() - idle

    def lora_parameters(self, rank: int) -> int:
        """Adapter parameters of all layers; embeddings and head have none."""
        return sum(
            group.num_layers * group.sizes.lora_parameters_per_layer(rank, group.mlp)
            for group in layer_groups(self)
        )


RARE_FIELDS = frozenset(
    name for name, field in ModelArchitecture.model_fields.items() if field.exclude_if is not None
)
"""Fields that say in what a model is no plain decoder; unset, they are not written."""


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of a model that are alike."""

    sizes: ModelArchitecture
    """The model as if all its layers were of this kind."""
    mlp: Mlp
    layers: tuple[int, ...]
    """Their places in the model, from 0."""

    @property
    def num_layers(self) -> int:
        """How many they are."""
        return len(self.layers)


@lru_cache(maxsize=256)
def layer_groups(architecture: ModelArchitecture) -> tuple[LayerGroup, ...]:
    """The layers of a model by kind, those without experts first where they lead."""
    if not architecture.layer_kinds:
        whole = range(architecture.num_layers)
        dense = architecture.num_dense_layers if architecture.num_experts else len(whole)
        parts: list[tuple[Mlp, range]] = [("dense", whole[:dense]), ("experts", whole[dense:])]
        return tuple(
            LayerGroup(architecture, mlp, tuple(layers)) for mlp, layers in parts if layers
        )
    found: dict[str, list[int]] = {kind.letter: [] for kind in architecture.layer_kinds}
    for layer, letter in enumerate(_letters(architecture)):
        found[letter].append(layer)
    usual: Mlp = "experts" if architecture.num_experts else "dense"
    return tuple(
        LayerGroup(_with(architecture, kind), kind.mlp or usual, tuple(found[kind.letter]))
        for kind in architecture.layer_kinds
        if found[kind.letter]
    )


@lru_cache(maxsize=256)
def layers_by_mixer(architecture: ModelArchitecture) -> tuple[tuple[ModelArchitecture, int], ...]:
    """(the model as if all layers had this mixer, number of layers that have it), by mixer."""
    found: dict[ModelArchitecture, int] = {}
    for group in layer_groups(architecture):
        found[group.sizes] = found.get(group.sizes, 0) + group.num_layers
    return tuple(found.items())


def _layers_with(architecture: ModelArchitecture, mlp: Mlp) -> int:
    return sum(group.num_layers for group in layer_groups(architecture) if group.mlp == mlp)


def _letters(architecture: ModelArchitecture) -> Iterator[str]:
    pattern = architecture.layer_pattern
    return (pattern[layer % len(pattern)] for layer in range(architecture.num_layers))


def _with(architecture: ModelArchitecture, kind: LayerKind) -> ModelArchitecture:
    """The model as if all its layers were of that kind."""
    own = kind.model_dump(exclude={"letter", "mlp"}, exclude_none=True)
    return architecture.model_copy(update={**own, "layer_kinds": (), "layer_pattern": ""})


def _check_mixer(architecture: ModelArchitecture) -> None:
    """Refuse a mixer without its sizes, and contradictory kinds of attention."""
    needed = {"gated_delta_net": "gated_delta_net", "mamba2": "mamba2"}.get(architecture.mixer)
    if needed is not None and getattr(architecture, needed) is None:
        raise FieldValueError(
            needed, f"layers have the mixer {needed}, whose sizes are missing", remedy="give them"
        )
    if architecture.indexer is not None and architecture.latent_attention is None:
        raise FieldValueError(
            "indexer", "is there without latent_attention", remedy="give both, or neither"
        )
    if architecture.sliding_window and architecture.attention_chunk_size:
        raise FieldValueError(
            "attention_chunk_size",
            "layers have a sliding_window as well",
            remedy="keep one of the two",
        )


def _check_kinds(architecture: ModelArchitecture) -> None:
    """Refuse kinds of layers without a pattern of them, and kinds that cannot be."""
    kinds, pattern = architecture.layer_kinds, architecture.layer_pattern
    letters = [kind.letter for kind in kinds]
    if len(set(letters)) < len(letters) or set(pattern) != set(letters):
        raise FieldValueError(
            "layer_pattern",
            f"has the letters {''.join(sorted(set(pattern))) or 'none'}, and layer_kinds "
            f"{''.join(letters) or 'none'}",
            remedy="give every kind a letter of its own, and use each in the pattern",
        )
    if len(pattern) > architecture.num_layers:
        raise FieldValueError(
            "layer_pattern",
            f"has {len(pattern)} letters for {architecture.num_layers} layers",
            remedy="give one letter per layer, or fewer, which repeat",
        )
    if kinds and architecture.num_dense_layers:
        raise FieldValueError(
            "num_dense_layers",
            "is there beside layer_kinds",
            remedy='give the dense layers a kind with mlp "dense"',
        )
    for kind in kinds:
        _check_kind(architecture, kind)


def _check_kind(architecture: ModelArchitecture, kind: LayerKind) -> None:
    field = f"layer_kinds.{kind.letter}"
    if kind.mlp == "experts" and not architecture.num_experts:
        raise FieldValueError(field, "has experts without num_experts", remedy="give num_experts")
    sizes = _with(architecture, kind)
    if sizes.mixer == "none" and kind.mlp == "none":
        raise FieldValueError(field, "has neither mixer nor MLP", remedy="give it one of them")
    # model_copy validates nothing, so the checks of a model are made of the kind here.
    if sizes.num_attention_heads % sizes.num_key_value_heads:
        raise FieldValueError(
            field,
            f"num_attention_heads={sizes.num_attention_heads} is not a multiple of its "
            f"num_key_value_heads={sizes.num_key_value_heads}",
            remedy="every key-value head serves as many query heads",
        )
    _check_mixer(sizes)
