"""Interface that algorithms are written against: model handles, numeric operations, declaration.

The planner runs a program with recording handles (`dataflow.trace`), the executor with worker
groups. Both give the program opaque data: it passes results on and never looks inside.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from automap.planner.spec import WorkloadSpec

Data = object
"""A result that lives elsewhere: rows of a batch, one row per sequence."""

Loss = Literal["ppo_clip", "policy_gradient", "value"]


class Handle(Protocol):
    """Handle of one role's model, with the calls that an algorithm can make."""

    def generate(self, prompts: Data, *, greedy: bool = False) -> Data:
        """Generate responses to every prompt: responses_per_prompt, or one without sampling."""
        ...

    def log_probs(self, rollout: Data) -> Data:
        """Log-probabilities [sequence, token] of the responses, in one forward pass."""
        ...

    def values(self, rollout: Data) -> Data:
        """Expected returns [sequence, token] at the response tokens, in one forward pass."""
        ...

    def score(self, rollout: Data, *, name: str = "") -> Data:
        """Scores [sequence] of the responses; `name` distinguishes a second call on one role."""
        ...

    def train(self, rollout: Data, *, loss: Loss, **inputs: Data | None) -> Data:
        """Train for all epochs over the rollout, one optimizer step per mini-batch.

        `inputs` are what the loss reads besides: old_log_probs, advantages, returns, values,
        reference_log_probs, pretrain, and the numbers that shape it (clip_low, clip_high).
        """
        ...


class Models(Protocol):
    """The job's models by role: `models.actor`, and `"cost_critic" in models`."""

    def __getattr__(self, role: str) -> Handle: ...

    def __contains__(self, role: str) -> bool: ...


class Ops(Protocol):
    """Numeric operations between calls; they take milliseconds on the host and are not planned."""

    @property
    def workload(self) -> WorkloadSpec:
        """The workload of the job's spec."""
        ...

    def rollout_log_probs(self, rollout: Data) -> Data:
        """The log-probabilities that the engine recorded while it generated."""
        ...

    def penalise_kl(self, scores: Data, log_probs: Data | None, reference: Data | None) -> Data:
        """Scores minus an estimate of the KL divergence; without a reference the scores alone."""
        ...

    def penalise_overlong(self, scores: Data, rollout: Data) -> Data:
        """Scores minus a soft penalty on responses close to the maximum length (DAPO)."""
        ...

    def gae(self, rewards: Data, values: Data) -> tuple[Data, Data]:
        """(advantages, returns) [sequence, token] by generalised advantage estimation.

        Source: Schulman et al. 2016, arXiv:1506.02438.
        """
        ...

    def group_normalise(self, rewards: Data) -> Data:
        """Rewards minus mean, over standard deviation, of the prompt's responses (GRPO)."""
        ...

    def leave_one_out(self, rewards: Data) -> Data:
        """Rewards minus the mean of the prompt's other responses (RLOO)."""
        ...

    def batch_normalise(self, rewards: Data) -> Data:
        """Rewards minus mean, over standard deviation, of the whole batch (REINFORCE++)."""
        ...

    def subtract(self, rewards: Data, baseline: Data) -> Data:
        """Rewards minus their prompt's baseline."""
        ...

    def lagrangian(self, rewards: Data, costs: Data) -> Data:
        """(rewards − λ·costs) / (1 + λ), where λ follows the mean cost of the batch (Safe-RLHF)."""
        ...

    def pretrain_batch(self) -> Data | None:
        """Pre-train rows, as many as the rollout's, if the workload asks for that loss."""
        ...

    def repeat_until(
        self,
        draw: Callable[[Data], tuple[Data, Data]],
        prompts: Data,
        *,
        keep: Literal["mixed_groups"],
        expected_rounds: float,
    ) -> tuple[Data, Data]:
        """Draw on fresh prompts until a full batch is kept; returns (rollout, scores) of the kept.

        `keep="mixed_groups"` drops prompts whose responses all score alike. The planner counts
        every call in `draw` `expected_rounds` times.
        """
        ...

    def apply(self, function: Callable[..., Data], *inputs: Data) -> Data:
        """A numeric function of your own on whole batches; the planner does not call it."""
        ...


@dataclass(frozen=True, slots=True)
class Program:
    """An algorithm: the function that both planner and executor run, and what it declares."""

    name: str
    run: Callable[[Models, Data, Ops], None]
    roles: tuple[str, ...]
    """Roles that the algorithm always calls."""
    optional_roles: tuple[str, ...]
    """Roles that it calls if they are given; the reference also depends on workload.kl."""
    has_importance_ratio: bool
    """Whether the loss corrects for rollouts of an older policy; if not, staleness is refused."""
    paper: str

    @property
    def all_roles(self) -> tuple[str, ...]:
        """All roles that it may call, the required ones first."""
        return self.roles + self.optional_roles


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference's log-probabilities, in the place where workload.kl wants them."""

    for_reward: Data | None = None
    for_loss: Data | None = None


def reference_log_probs(models: Models, rollout: Data, ops: Ops) -> Reference:
    """Ask the reference unless workload.kl is none."""
    if ops.workload.kl == "none":
        return Reference()
    log_probs = models.reference.log_probs(rollout)
    if ops.workload.kl == "reward":
        return Reference(for_reward=log_probs)
    return Reference(for_loss=log_probs)


def old_log_probs(models: Models, rollout: Data, ops: Ops) -> Data:
    """The policy's log-probabilities before its first update: recomputed, or the engine's."""
    if ops.workload.old_log_probs == "rollout":
        return ops.rollout_log_probs(rollout)
    return models.actor.log_probs(rollout)
