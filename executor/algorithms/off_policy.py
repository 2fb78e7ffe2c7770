"""What makes up for tokens that older weights, or another engine, generated.

Three policies: the behaviour policy μ, whose log-probabilities the engine recorded as it generated
(column behaviour_log_probs); the proximal policy π_p, whose log-probabilities a pass gave before
training (old_log_probs); and the policy π that is trained. PPO's clipped loss keeps π near π_p, and
the weight π_p/μ of each token makes the expectation over μ's tokens that over π_p's. The weight is
a constant: no gradient flows through it.
"""

from dataclasses import dataclass

from torch import Tensor

from automap.executor.algorithms.numerics import LARGEST_EXPONENT
from automap.executor.settings import AlgorithmSettings


@dataclass(frozen=True, slots=True)
class OffPolicyCorrection:
    """Weighs a token's clipped loss by π_p/μ, as far as a cap allows."""

    cap: float
    """The largest weight, at least 1."""
    leaves_out: bool
    """Above the cap a token counts nothing; else as much as the cap."""

    @classmethod
    def of(cls, settings: AlgorithmSettings) -> "OffPolicyCorrection | None":
        """The correction that resolved settings name.

        decoupled_ppo: Hilton et al. 2021, arXiv:2110.00641; with the cap as in AReaL, Fu et al.
        2025, arXiv:2505.24298. truncated_importance_sampling: Yao et al. 2025, "Your Efficient RL
        Framework Secretly Brings You Off-Policy RL Training"; as verl's rollout correction.

        Raises:
            ValueError: the cap is left open.
        """
        name, cap = settings.off_policy_correction, settings.importance_weight_cap
        if name is None:
            return None
        if cap is None:
            raise ValueError(
                f"importance_weight_cap must be set with off_policy_correction={name!r}; "
                "resolve_settings fills in the correction's"
            )
        return cls(cap, leaves_out=name == "decoupled_ppo")

    def weights(self, proximal: Tensor, behaviour: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Weights [tokens] from log-probabilities [tokens], and metrics of every token beside them.

        Metrics: actor/importance_weight, actor/importance_capfrac (above the cap), and
        actor/behaviour_kl, the k1 estimate of KL(μ ‖ π_p).
        """
        log_weight = (proximal - behaviour).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)
        weights = log_weight.exp()
        capped = weights > self.cap
        weights = weights.masked_fill(capped, 0.0 if self.leaves_out else self.cap)
        return weights, {
            "actor/importance_weight": weights,
            "actor/importance_capfrac": capped,
            "actor/behaviour_kl": -log_weight,
        }
