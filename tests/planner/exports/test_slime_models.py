"""What slime is told of models: all that Megatron-LM does otherwise by itself, or why it is not."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from automap.planner.catalogue import architecture, architectures
from automap.planner.catalogue.routing import ROUTING, SCALED, UNSAID, routing_of
from automap.planner.exports.refusals import refusals
from automap.planner.exports.slime.configured import needed_fields, read_fields
from automap.planner.exports.slime.model import unsaid
from automap.planner.exports.slime.settings import launch_of
from automap.planner.exports.subject import Subject, subject_of
from automap.planner.job.resolution import resolve
from tests.helpers.framework_plans import Wanted, plan_of
from tests.helpers.slime_plans import SGLANG, SLIME
from tests.planner.exports.test_slime import submitted

YARN = {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
YARN |= {"original_max_position_embeddings": 4096, "type": "yarn"}
CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek-v3": {
        "rope_theta": 10000,
        "rope_scaling": YARN,
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "n_group": 8,
        "topk_group": 4,
        "routed_scaling_factor": 2.5,
    },
    "moonlight-16b-a3b": {
        "rope_theta": 50000.0,
        "rope_scaling": None,
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 2.446,
    },
    "glm-4.5-air": {
        "partial_rotary_factor": 0.5,
        "rope_scaling": None,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
    },
    "qwen3-30b-a3b": {"norm_topk_prob": True, "rope_scaling": None},
    "llama-3.1-8b": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
}
"""Model → what its published config.json says beside its sizes, as far as it is read."""
SIGMOID = {
    "--moe-router-score-function": "sigmoid",
    "--moe-router-pre-softmax": "",
    "--moe-router-enable-expert-bias": "",
    "--moe-router-bias-update-rate": "0",
    "--moe-router-dtype": "fp32",
}
TOLD: dict[str, dict[str, str]] = {
    "deepseek-v3": {
        **SIGMOID,
        "--moe-router-num-groups": "8",
        "--moe-router-group-topk": "4",
        "--moe-router-topk-scaling-factor": "2.5",
        "--multi-latent-attention": "",
        "--qk-layernorm": "",
        "--rotary-base": "10000",
        "--rotary-scaling-factor": "40",
        "--mscale": "1",
        "--mscale-all-dim": "1",
        "--moe-layer-freq": "([0]*3+[1]*58)",
        "--untie-embeddings-and-output-weights": "",
        "--no-rope-fusion": "",
    },
    "moonlight-16b-a3b": {
        **SIGMOID,
        "--moe-router-topk-scaling-factor": "2.446",
        "--qk-layernorm": "",
        "--rotary-scaling-factor": "1",
    },
    "glm-4.5-air": {
        **SIGMOID,
        "--moe-router-num-groups": "1",
        "--moe-router-topk-scaling-factor": "1",
        "--rotary-percent": "0.5",
        "--add-qkv-bias": "",
        "--moe-layer-freq": "([0]*1+[1]*45)",
    },
    "qwen3-30b-a3b": {
        "--moe-router-score-function": "softmax",
        "--qk-layernorm": "",
        "--rotary-percent": "1",
    },
    "llama-3.1-8b": {"--use-rope-scaling": "", "--rotary-percent": "1"},
}
"""Model → arguments of MODEL_ARGS that slime's own launches of it have. Source: its
scripts/models, as deepseek-v3.sh, moonlight.sh, glm4.5-106B-A12B.sh and qwen3-30B-A3B.sh."""
NEVER = {
    "glm-4.5-air": {"--qk-layernorm", "--use-rope-scaling"},
    "qwen3-30b-a3b": {"--moe-router-pre-softmax", "--moe-router-enable-expert-bias"},
    "deepseek-v3": {"--add-qkv-bias", "--group-query-attention", "--rotary-percent"},
}


def subject_with(name: str) -> Subject:
    """A plan as an export reads it, whose actor is another model than it is made for."""
    plan = plan_of(Wanted(model="qwen2.5-1.5b", num_nodes=1, workload=SGLANG))
    models = {
        role: model.model_copy(update={"architecture": name}) if model.needs_gpus else model
        for role, model in plan.spec.models.items()
    }
    spec = plan.spec.model_copy(update={"models": models})
    return subject_of(resolve(spec), plan.model_copy(update={"spec": spec}), SLIME)


def launched(name: str, folder: Path, config: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
    """(exit code, errors, argument → the value after it) of the launch of a model."""
    code, errors, words = submitted(launch_of(subject_with(name)), folder, config=config)
    found = dict(pairwise([*words, "--"]))
    return code, errors, {k: "" if v.startswith("--") else v for k, v in found.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_launch_says_what_the_models_own_launches_say(name: str, tmp_path: Path) -> None:
    code, errors, found = launched(name, tmp_path, CONFIGS[name])
    assert code == 0, errors
    assert {key: found.get(key) for key in TOLD[name]} == TOLD[name]
    assert not NEVER.get(name, set()) & found.keys()


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("deepseek-v3", {"rope_scaling": YARN | {"beta_fast": 1}}, "beta_fast 1"),
        ("deepseek-v3", {"rope_scaling": {"type": "linear", "factor": 2}}, "rope_type linear"),
        ("deepseek-v3", {"norm_topk_prob": False}, "norm_topk_prob False"),
        ("glm-4.5-air", {"scoring_func": "softmax"}, "scoring_func softmax"),
        ("qwen3-30b-a3b", {"norm_topk_prob": False}, "norm_topk_prob False"),
        ("qwen3-30b-a3b", {"rope_scaling": YARN}, "rope_type yarn"),
        ("llama-3.1-8b", {"rope_scaling": None}, "rope_type default"),
        ("llama-3.1-8b", {"rope_parameters": {"rope_type": "llama3", "factor": 32.0}}, "factor 32"),
    ],
)
def test_a_model_that_the_arguments_do_not_describe_is_not_started(
    name: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    code, errors, found = launched(name, tmp_path, CONFIGS[name] | changes)
    assert (code, found) == (2, {})
    assert f"not started: config.json has {words}, and MODEL_ARGS say" in errors


@pytest.mark.parametrize("name", architectures())
def test_every_model_of_the_catalogue_is_described_or_refused_with_what_is_missing(
    name: str,
) -> None:
    shape = architecture(name)
    why = unsaid(shape)
    if name in UNSAID:
        assert why == f"it has {UNSAID[name]}"
    if why is not None:
        assert name in UNSAID or why.startswith(("it has ", "how it routes tokens is not known ("))
        return
    plain = not (shape.latent_attention or shape.num_dense_layers or shape.num_experts)
    assert plain or routing_of(shape) is not None
    described = {key for setting in SLIME.settings for key in setting.keys.values()}
    assert read_fields(shape).keys() <= described
    fields = {field for field, *_ in needed_fields(shape)}
    assert "rope_type" in fields
    assert ("norm_topk_prob" in fields) == bool(shape.num_experts)


def test_a_mixture_whose_routing_is_not_known_is_refused_with_its_arguments() -> None:
    shape = architecture("glm-4.5-air").model_copy(update={"num_layers": 40})
    why = unsaid(shape)
    assert why is not None
    assert "--moe-router-score-function" in why
    assert "--moe-router-enable-expert-bias" in why
    subject = subject_with("kimi-k2")
    assert any("beta_fast 1" in each.summary for each in refusals(subject))
    # A launch that exists has its MODEL_ARGS.
    given = replace(subject, says_model=False)
    assert not any("beta_fast" in each.summary for each in refusals(given))


def test_names_are_those_of_the_catalogue() -> None:
    assert {*ROUTING, *UNSAID, *SCALED} <= architectures().keys()
    # A longer window is no other way to route.
    longer = architecture("glm-4.5").model_copy(update={"max_position_embeddings": 202_752})
    assert routing_of(longer) == "sigmoid"
