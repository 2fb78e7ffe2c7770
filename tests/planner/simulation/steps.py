"""Costs of the steps of one engine replica: the very numbers that the closed form sums."""

from dataclasses import dataclass

import numpy as np

from automap.planner.cost import constants
from automap.planner.cost.generation.decode import StepTables
from automap.planner.cost.generation.generate_call import GenerationPhases
from automap.planner.cost.rollout_engines import EngineProfile


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Step costs of one layout on one pool."""

    tables: StepTables
    engine: EngineProfile
    shape: int
    """Index of the layout's shape in `tables`."""
    stages: int
    """Pipeline stages, which a batch passes in as many micro-batches."""
    prefill_token_seconds: float
    """Seconds to prefill one token, in whole chunks."""
    pipeline_fill_seconds: float
    """Seconds until the first chunk has passed all pipeline stages but one."""
    chunk_tokens: int = constants.PREFILL_CHUNK_TOKENS

    @staticmethod
    def of(phases: GenerationPhases, *, row: int, stages: int) -> "StepCosts":
        """Step costs of one row of the closed form."""
        seconds = phases.prefill
        return StepCosts(
            tables=phases.tables,
            shape=int(phases.shape[row]),
            stages=stages,
            engine=phases.engine,
            prefill_token_seconds=float(
                seconds.compute[row] + seconds.communication[row] + seconds.overhead[row]
            )
            / float(phases.prefill_tokens[row]),
            pipeline_fill_seconds=float(seconds.bubble[row]),
        )

    def decode_seconds(self, batch: int, cache_length: float) -> float:
        """Seconds of one decode step of a batch with the given mean cache length in tokens."""
        compute, moved = self.tables.at(
            np.array([self.shape]),
            np.array([max(batch / self.stages, 1.0)]),
            np.array([cache_length]),
        )
        overhead = self.engine.step_seconds + self.engine.sequence_seconds * batch
        return float(compute[0] + moved[0]) + overhead
