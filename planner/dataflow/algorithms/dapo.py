"""DAPO: GRPO that draws until every group has mixed scores, with a wider upper clip."""

from automap.planner.dataflow.algorithms.program import (
    Data,
    Models,
    Ops,
    Program,
    old_log_probs,
    reference_log_probs,
)


def dapo(models: Models, prompts: Data, ops: Ops) -> None:
    """Run one iteration of DAPO. The paper has no KL: set workload.kl to none."""

    def draw(fresh_prompts: Data) -> tuple[Data, Data]:
        rollout = models.actor.generate(fresh_prompts)
        return rollout, models.reward.score(rollout)

    rollout, scores = ops.repeat_until(
        draw,
        prompts,
        keep="mixed_groups",
        expected_rounds=1 / ops.workload.expected_acceptance,
    )
    old = old_log_probs(models, rollout, ops)
    reference = reference_log_probs(models, rollout, ops)
    rewards = ops.penalise_kl(ops.penalise_overlong(scores, rollout), old, reference.for_reward)
    models.actor.train(
        rollout,
        loss="ppo_clip",
        old_log_probs=old,
        advantages=ops.group_normalise(rewards),
        reference_log_probs=reference.for_loss,
    )


PROGRAM = Program(
    name="dapo",
    run=dapo,
    roles=("actor", "reward"),
    optional_roles=("reference",),
    has_importance_ratio=True,
    paper="Yu et al. 2025, arXiv:2503.14476",
)
