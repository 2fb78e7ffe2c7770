"""What of a model only its config.json says: read, or held to what Megatron-LM has, at the start.

The catalogue has sizes, and one of its names may cover releases that differ in the rest, as Llama 3
and 3.1 do in their positions.
"""

from collections.abc import Iterator, Mapping

from automap.planner.catalogue import ModelArchitecture
from automap.planner.catalogue.routing import routing_of, scales_positions

CONFIGURED = r"""configured() {
  python3 -c 'import json, sys
config = json.load(open(sys.argv[1]))
config.update(config.get("text_config") or {})
for name in ("rope_scaling", "rope_parameters"):
    rope = config.get(name) or {}
    config.update(rope)
    if "rope_type" not in rope and "type" in rope:
        config["rope_type"] = rope["type"]
found = config.get(sys.argv[2])
found = sys.argv[3] if found is None else found
print(f"{found:.10g}" if isinstance(found, float) else found)' "$ACTOR_MODEL/config.json" "$@"
}"""
"""The function of a script that prints a field of the model's own configuration, or a default."""
NEED = r"""need() {
  local found
  found=$(configured "$1" "$2")
  if [[ " ${*:3} " != *" $found "* ]]; then
    echo "not started: config.json has $1 $found, and MODEL_ARGS say ${*:3}" >&2
    exit 2
  fi
}"""
"""The function of a script that leaves where a field, or the default after it, has none of the
values that follow."""
Field = tuple[str, str]
"""(field, what it is where the file lacks it; empty: it has to be there)."""


def read_fields(shape: ModelArchitecture) -> Mapping[str, Field]:
    """Argument → the field that it says."""
    found: dict[str, Field] = {
        "--rotary-base": ("rope_theta", ""),
        "--norm-epsilon": ("rms_norm_eps", ""),
    }
    if shape.latent_attention is None:
        found["--rotary-percent"] = ("partial_rotary_factor", "1")
    else:
        found["--rotary-scaling-factor"] = ("factor", "1")
        found["--mscale"] = ("mscale", "1")
        found["--mscale-all-dim"] = ("mscale_all_dim", "0")
    routing = routing_of(shape)
    if routing == "sigmoid":
        found["--moe-router-num-groups"] = ("n_group", "1")
        found["--moe-router-group-topk"] = ("topk_group", "1")
    if routing in ("sigmoid", "softmax of all"):
        found["--moe-router-topk-scaling-factor"] = ("routed_scaling_factor", "1")
    return found


def needed_fields(shape: ModelArchitecture) -> Iterator[tuple[str, ...]]:
    """(field, what it is where the file lacks it, values that are what the arguments say)."""
    if scales_positions(shape):
        yield "rope_type", "default", "llama3"
        yield "factor", "1", "8"
    elif shape.latent_attention is None:
        # With text alone the positions of models of images are the usual ones.
        yield "rope_type", "default", "default", "mrope"
    else:
        yield "rope_type", "default", "default", "yarn"
        # Megatron's own, for which it has no argument.
        yield "beta_fast", "32", "32"
        yield "beta_slow", "1", "1"
        yield "original_max_position_embeddings", "4096", "4096"
    yield from _needed_of_experts(shape)


def _needed_of_experts(shape: ModelArchitecture) -> Iterator[tuple[str, ...]]:
    match routing_of(shape):
        case "sigmoid":
            yield "scoring_func", "sigmoid", "sigmoid"
            yield "norm_topk_prob", "True", "True"
        case "softmax of all":
            yield "scoring_func", "softmax", "softmax"
            yield "norm_topk_prob", "False", "False"
            yield "topk_method", "greedy", "greedy"
        case "softmax of the chosen":
            yield "norm_topk_prob", "True", "True"
            yield "n_group", "1", "1"
            yield "routed_scaling_factor", "1", "1"
