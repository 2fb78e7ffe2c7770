"""The model of a slime launch: by the name of its checkpoint, or by the sizes in MODEL_ARGS."""

from typing import Any

from automap.planner.catalogue import ModelArchitecture, find_model
from automap.planner.imports.answers import architecture_of
from automap.planner.imports.launch import Answers
from automap.planner.imports.settings import Settings

SIZES = {
    "num_layers": "model_layers",
    "hidden_size": "model_hidden",
    "intermediate_size": "model_mlp",
    "num_attention_heads": "model_heads",
    "vocab_size": "model_vocabulary",
}
"""Field of an architecture → the argument that says it, without which none is made."""
COMPARED = ("num_layers", "hidden_size", "num_attention_heads")
"""Vocabularies are padded, and a mixture's dense MLP may be one that no layer has."""
PREFIX = "model_"
"""What decisions of MODEL_ARGS begin with."""
OF_CONFIG = "config_"
"""Likewise of what no size depends on, which a script may well read from the model itself."""
POSITIONS = 131072


def actor_of(settings: Settings, answers: Answers) -> object:
    """The actor's model; sizes that contradict the one of that name are said."""
    for each in settings.framework.settings:
        if each.decision.startswith(PREFIX):
            settings.needless(each.decision)
        if each.decision.startswith(OF_CONFIG):
            settings.decides.setdefault(each.key(), each.about)
    sizes = _sizes(settings)
    given = settings.given("model", "actor")
    path = given.value.rstrip("/").rpartition("/")[2] if given is not None else ""
    known = find_model(path) if path else None
    if known is not None and sizes is not None and "actor" not in answers.models:
        _compare(settings, known.architecture, sizes, path)
    if "actor" in answers.models or known is not None or sizes is None:
        return architecture_of(settings, answers, "actor")
    settings.decides.setdefault(settings.key("model", "actor"), "folder of the model")
    settings.assume("the model has the sizes of MODEL_ARGS: the catalogue does not know its name")
    return sizes


def _sizes(settings: Settings) -> dict[str, Any] | None:
    """The sizes of MODEL_ARGS; None: some are not there, or of a kind that is not read."""
    decisions = list(SIZES.values())
    given = [settings.given(decision) for decision in decisions]
    if any(each is None or each.unknown for each in given) or settings.flag("model_latent"):
        return None
    found: dict[str, Any] = {field: settings.size(decision) for field, decision in SIZES.items()}
    heads, width = found["num_attention_heads"], found["hidden_size"]
    grouped = settings.flag("model_groups")
    positions = settings.overrides.given.get("--max-position-embeddings")
    if positions is None or not positions.value.isdecimal():
        settings.assume(f"the model has {POSITIONS} positions: MODEL_ARGS do not say")
    else:
        found["max_position_embeddings"] = int(positions.value)
    found = {
        "max_position_embeddings": POSITIONS,
        **found,
        "num_key_value_heads": settings.size("model_key_value_heads") if grouped else heads,
        "head_dim": settings.whole("model_head_size") or max(width // heads, 1),
        "attention_bias": settings.flag("model_attention_bias"),
        "query_key_norm": settings.flag("model_query_key_norm"),
        "tied_embeddings": not settings.flag("model_own_head"),
        "gated_mlp": settings.flag("model_gated"),
    }
    if experts := settings.whole("model_experts"):
        found["num_experts"] = experts
        found["num_experts_per_token"] = settings.size("model_experts_per_token")
        mlp = settings.whole("model_expert_mlp") or found["intermediate_size"]
        found["moe_intermediate_size"] = mlp
        found["shared_expert_intermediate_size"] = settings.whole("model_shared_experts") or 0
    return found


def _compare(
    settings: Settings, known: ModelArchitecture, sizes: dict[str, Any], name: str
) -> None:
    for field in COMPARED:
        if sizes[field] != getattr(known, field):
            key = settings.key(SIZES[field])
            told = f"{key} is {sizes[field]}, and {name} has {getattr(known, field)}"
            settings.note("contradiction", told, settings.given(SIZES[field]))
