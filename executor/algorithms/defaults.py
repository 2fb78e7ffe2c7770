"""What an algorithm's numbers are where the settings leave them open."""

from typing import Literal

from automap.executor.settings import AlgorithmSettings

_DEFAULTS: dict[str, object] = {
    "aggregate": "token_mean",
    "clip_high": 0.2,
    "whiten_advantages": True,
}
# Only what the papers do differently; docs/concepts/algorithms.md lists it.
_DEFAULTS_OF: dict[str, dict[str, object]] = {
    "dapo": {"clip_high": 0.28},
    "grpo": {"aggregate": "sequence_mean"},
    "safe_rlhf": {"whiten_advantages": False},
}
_WEIGHT_CAPS = {"decoupled_ppo": 5.0, "truncated_importance_sampling": 2.0}
_KL_ESTIMATORS = {"none": "k1", "reward": "k1", "loss": "k3"}


def resolve_settings(
    settings: AlgorithmSettings, *, algorithm: str, kl: Literal["none", "reward", "loss"]
) -> AlgorithmSettings:
    """The settings with every default of the algorithm filled in; of one's own, the common ones.

    Args:
        settings: As the user gave them.
        algorithm: Name of the program.
        kl: Where the workload applies the KL penalty, on which its estimator depends.
    """
    defaults = {**_DEFAULTS, "kl_estimator": _KL_ESTIMATORS[kl], **_DEFAULTS_OF.get(algorithm, {})}
    if settings.off_policy_correction is not None:
        defaults["importance_weight_cap"] = _WEIGHT_CAPS[settings.off_policy_correction]
    missing = {name: value for name, value in defaults.items() if getattr(settings, name) is None}
    return AlgorithmSettings.model_validate({**settings.model_dump(), **missing})
