"""Implements `automap.planner.dataflow.algorithms.program.Ops`: numeric operations on references.

The numbers are computed where the data can be had: by a process beside the controller, or in it
where the rows are few. See `numeric_steps` for what and `automap.executor.algorithms.numerics` for
how.
"""

from collections.abc import Callable
from typing import Literal

from automap.executor.errors import RunError
from automap.executor.runtime.handles import Iteration, Sequences, Values, concatenated
from automap.executor.runtime.tasks import Future
from automap.executor.workers import numeric_steps
from automap.executor.workers.row_references import Rows
from automap.planner.spec import WorkloadSpec


class RunningOps:
    """The operations of one iteration."""

    def __init__(
        self,
        iteration: Iteration,
        *,
        multiplier: float | Future[float],
        fresh_prompts: Callable[[], Sequences],
        pretrain_rows: Callable[[int], Sequences] | None = None,
    ) -> None:
        """State and sources that outlive the iteration.

        Args:
            iteration: What handles and operations share.
            multiplier: Safe-RLHF's, as the last iteration left it.
            fresh_prompts: Another full batch of prompts, for dynamic sampling.
            pretrain_rows: So many rows of pre-train text, with the column `tokens`.
        """
        self._iteration = iteration
        self._multiplier = multiplier
        self._next_multiplier: Future[float] | None = None
        self._fresh_prompts = fresh_prompts
        self._pretrain_rows = pretrain_rows

    @property
    def workload(self) -> WorkloadSpec:
        """See `Ops`."""
        return self._iteration.workload

    @property
    def multiplier(self) -> float:
        """Safe-RLHF's, after this iteration if it updates it; waits for that."""
        following = self.next_multiplier
        return following.result() if isinstance(following, Future) else following

    @property
    def next_multiplier(self) -> float | Future[float]:
        """What the next iteration begins with; see `multiplier`."""
        return self._next_multiplier or self._multiplier

    def rollout_log_probs(self, rollout: Sequences) -> Values:
        """See `Ops`."""
        rows = rollout.rows.map(lambda each: each.only(log_probs="response_log_probs"))
        return Values(rows, rollout)

    def penalise_kl(
        self, scores: Values, log_probs: Values | None, reference: Values | None
    ) -> Values:
        """See `Ops`; the scores become rewards of tokens, also without a reference."""
        settings = self._iteration.settings
        rewards = self._values(
            scores,
            numeric_steps.penalise_kl,
            scores.rows,
            _only(scores.rollout, "response_tokens"),
            None if log_probs is None or reference is None else log_probs.rows,
            None if reference is None else reference.rows,
            coefficient=settings.kl_coefficient,
            estimator=settings.kl_estimator,
        )
        return self._iteration.note("rewards", rewards)

    def penalise_overlong(self, scores: Values, rollout: Sequences) -> Values:
        """See `Ops`."""
        return self._values(
            scores,
            numeric_steps.penalise_overlong,
            scores.rows,
            _only(rollout, "response_tokens"),
            maximum_length=self.workload.response_length.max_tokens,
            buffer=self._iteration.settings.overlong_buffer_tokens,
        )

    def gae(self, rewards: Values, values: Values) -> tuple[Values, Values]:
        """See `Ops`."""
        settings = self._iteration.settings
        both = self._values(
            rewards,
            numeric_steps.gae,
            rewards.rows,
            values.rows,
            gamma=settings.gamma,
            lam=settings.lam,
            whiten=settings.whiten_advantages,
        )
        return self._noted("advantages", both), self._noted("returns", both)

    def group_normalise(self, rewards: Values) -> Values:
        """See `Ops`."""
        found = self._values(
            rewards, numeric_steps.group_normalise, rewards.rows, _only(rewards.rollout, "group")
        )
        return self._noted("advantages", found)

    def leave_one_out(self, rewards: Values) -> Values:
        """See `Ops`."""
        found = self._values(
            rewards, numeric_steps.leave_one_out, rewards.rows, _only(rewards.rollout, "group")
        )
        return self._noted("advantages", found)

    def batch_normalise(self, rewards: Values) -> Values:
        """See `Ops`."""
        gamma = self._iteration.settings.gamma
        found = self._values(rewards, numeric_steps.batch_normalise, rewards.rows, gamma=gamma)
        return self._noted("advantages", found)

    def subtract(self, rewards: Values, baseline: Values) -> Values:
        """See `Ops`."""
        return self._values(
            rewards,
            numeric_steps.subtract,
            rewards.rows,
            _only(rewards.rollout, "group"),
            baseline.rows,
            _only(baseline.rollout, "group"),
        )

    def lagrangian(self, rewards: Values, costs: Values) -> Values:
        """See `Ops`; the multiplier follows what the role `cost` scored, if it did."""
        settings = self._iteration.settings
        if self._next_multiplier is None:
            followed = self._iteration.costs or costs
            self._next_multiplier = self._iteration.compute(
                numeric_steps.next_multiplier,
                self._multiplier,
                followed.rows,
                cost_limit=settings.cost_limit,
                learning_rate=settings.multiplier_learning_rate,
                maximum=settings.maximum_multiplier,
            )
        return self._values(
            rewards, numeric_steps.lagrangian, rewards.rows, costs.rows, self._next_multiplier
        )

    def pretrain_batch(self) -> Sequences | None:
        """See `Ops`."""
        if not self.workload.pretrain_loss:
            return None
        if self._pretrain_rows is None:
            raise RunError(
                "workload.pretrain_loss: the run has no pre-train data; give some, or set it to "
                "false"
            )
        return self._pretrain_rows(self.workload.num_sequences)

    def repeat_until(
        self,
        draw: Callable[[Sequences], tuple[Sequences, Values]],
        prompts: Sequences,
        *,
        keep: Literal["mixed_groups"],
        expected_rounds: float,
    ) -> tuple[Sequences, Values]:
        """See `Ops`; waits, because whether to draw again depends on the scores.

        Raises:
            RunError: no full batch after dynamic_sampling_max_rounds.
        """
        if self._iteration.responses is not None:
            raise RunError(
                "search.continuous_rollouts: the program draws until a batch is full "
                "(repeat_until), but continuous rollouts have one batch for an iteration; plan "
                "without them"
            )
        wanted = self.workload.num_sequences
        most = self._iteration.settings.dynamic_sampling_max_rounds
        before = self._iteration.used_ids.copy()
        rollouts: list[Rows] = []
        scores: list[Rows] = []
        for round_number in range(most):
            # The plan counts the calls of all rounds as one.
            self._iteration.used_ids = before.copy()
            rollout, score = draw(prompts if round_number == 0 else self._fresh_prompts())
            kept = self._iteration.compute(
                numeric_steps.rows_of_mixed_groups, score.rows, _only(rollout, "group")
            ).result()
            rollouts.append(rollout.rows.result().take(kept))
            scores.append(score.rows.result().take(kept))
            if sum(each.num_rows for each in rollouts) >= wanted:
                return self._full_batch(rollouts, scores, wanted)
        found = sum(each.num_rows for each in rollouts)
        raise RunError(
            f"dynamic sampling kept {found} of {wanted} responses after {most} rounds: the others' "
            "prompts had the same score for every response. Raise "
            "algorithm.dynamic_sampling_max_rounds, or use other prompts"
        )

    def apply(self, function: Callable[..., object], *inputs: object) -> Values:
        """See `Ops`.

        The function gets a Tensor or Ragged for each column, a Batch for prompts and rollouts,
        anything else as it is; it returns a Tensor or Ragged of as many rows as its first input
        that is a column.
        """
        given = [each.rows if isinstance(each, Values | Sequences) else each for each in inputs]
        columns = tuple(isinstance(each, Values) for each in inputs)
        like = next((each for each in inputs if isinstance(each, Values)), None)
        if like is None:
            raise TypeError("ops.apply needs a column (scores, rewards, …) among its inputs")
        rows = self._iteration.compute_apart(numeric_steps.applied, function, columns, *given)
        return Values(rows, like.rollout)

    def _full_batch(
        self, rollouts: list[Rows], scores: list[Rows], wanted: int
    ) -> tuple[Sequences, Values]:
        derive = self._iteration.scheduler.derive
        rollout = Sequences(derive(lambda: concatenated(rollouts).slice(0, wanted)))
        full = Values(derive(lambda: concatenated(scores).slice(0, wanted)), rollout)
        return rollout, self._iteration.note("reward.score", full)

    def _noted(self, name: str, values: Values) -> Values:
        return self._iteration.note(name, _column(values, name))

    def _values(
        self, like: Values, step: Callable[..., object], *args: object, **numbers: object
    ) -> Values:
        return Values(self._iteration.compute(step, *args, **numbers), like.rollout)


def _column(values: Values, name: str) -> Values:
    return Values(values.rows.map(lambda each: each.only(name)), values.rollout)


def _only(rollout: Sequences, name: str) -> Future[Rows]:
    """The one column that a step reads: others are not fetched for it."""
    return rollout.rows.map(lambda each: each.only(name))
