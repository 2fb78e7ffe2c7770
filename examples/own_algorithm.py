"""An algorithm of one's own and its reward: `automap run examples/tiny-own-algorithm-cpu.yaml`.

The better half: like GRPO, but responses that score below their prompt's mean teach nothing.
"""

from typing import Any

from automap.planner.dataflow import Data, Models, Ops, Program


def better_half(models: Models, prompts: Data, ops: Ops) -> None:
    """One iteration."""
    rollout = models.actor.generate(prompts)
    rewards = ops.penalise_kl(models.reward.score(rollout), None, None)
    advantages = ops.apply(positive_part, ops.group_normalise(rewards))
    models.actor.train(rollout, loss="policy_gradient", advantages=advantages)


def positive_part(advantages: Any) -> Any:
    """A numeric step: an `automap.executor.batch.Ragged`, one value per response token."""
    return advantages.with_values(advantages.values.clamp(min=0))


PROGRAM = Program(
    name="better_half",
    run=better_half,
    roles=("actor", "reward"),
    optional_roles=(),
    has_importance_ratio=False,
    paper="none",
)


def longest_run(prompt_tokens: list[list[int]], response_tokens: list[list[int]]) -> list[float]:
    """The reward: how long the prompt's last token repeats at a stretch, as a share."""
    return [
        run_length(response, wanted=prompt[-1]) / max(len(response), 1)
        for prompt, response in zip(prompt_tokens, response_tokens, strict=True)
    ]


def run_length(tokens: list[int], *, wanted: int) -> int:
    """Of the longest stretch."""
    longest = current = 0
    for token in tokens:
        current = current + 1 if token == wanted else 0
        longest = max(longest, current)
    return longest
