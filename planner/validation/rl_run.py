"""A GRPO job as a row lays it out, and the seconds of its stages by the planner's own prices."""

from dataclasses import dataclass

import numpy as np

from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import Pool
from automap.planner.cost.pricing import Pricing
from automap.planner.cost.rl_systems import RlSystem
from automap.planner.cost.transition import reload_seconds
from automap.planner.dataflow.graph import Call
from automap.planner.errors import SpecError
from automap.planner.job.job import Job
from automap.planner.job.resolution import resolve
from automap.planner.layout import RECOMPUTES, GenerationLayouts, IntArray, Layouts
from automap.planner.spec import JobSpec, TrainingStack
from automap.planner.validation.generation import Server, cache_room
from automap.planner.validation.predictions import CannotPredictError
from automap.planner.validation.subjects import column

STATE = ("weights", "gradients", "optimizer")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of what an iteration processes; lengths in tokens."""

    prompt_tokens: int
    response_tokens: float
    longest_response: int
    num_rollouts: int
    responses_per_prompt: int
    num_updates: int
    has_reference: bool

    @property
    def padded_tokens(self) -> int:
        """Tokens of a batch in which every sequence is padded to the longest."""
        return self.num_rollouts * (self.prompt_tokens + self.longest_response)

    @property
    def packed(self) -> int:
        """Sequences that fill a micro-batch packed to the longest one (sequence packing)."""
        longest = self.prompt_tokens + self.longest_response
        return max(int(longest / (self.prompt_tokens + self.response_tokens)), 1)


def grpo_job(
    sizes: Sizes,
    architecture: ModelArchitecture,
    pool: Pool,
    training_stack: TrainingStack,
    product_precision: str,
) -> Job:
    """A GRPO job with a reward function that takes no time, on as many nodes as the pool has.

    Where training multiplies in fp8, the rollout does too.

    Raises:
        CannotPredictError: the sizes contradict one another.
    """
    eight_bit = product_precision == "fp8"
    models: dict[str, object] = {
        "actor": {"architecture": architecture},
        "reward": {"function": True},
    }
    if sizes.has_reference:
        models["reference"] = {"architecture": architecture}
    document = {
        "name": "measured",
        "algorithm": "grpo",
        "models": models,
        "workload": {
            "prompts_per_iteration": max(sizes.num_rollouts // sizes.responses_per_prompt, 1),
            "responses_per_prompt": min(sizes.responses_per_prompt, sizes.num_rollouts),
            "prompt_length": {"mean": float(sizes.prompt_tokens), "max": sizes.prompt_tokens},
            "response_length": {"mean": sizes.response_tokens, "max": sizes.longest_response},
            "updates_per_epoch": sizes.num_updates,
            "kl": "loss" if sizes.has_reference else "none",
            "training_stack": training_stack,
            "training_precision": "fp8" if eight_bit else None,
            "rollout_precision": "fp8" if eight_bit else None,
        },
        "cluster": {
            "pools": [{"name": pool.name, "gpu": pool.gpu.name, "num_nodes": pool.num_nodes}]
        },
        # Its framework's own seconds are added to these prices.
        "search": {"target": "any"},
    }
    try:
        return resolve(JobSpec.model_validate(document))
    except (SpecError, ValueError) as error:
        raise CannotPredictError(f"no job: {error}") from None


@dataclass(frozen=True, slots=True)
class Run:
    """A job on its GPUs, trained in one layout and generated with in another."""

    job: Job
    pool: Pool
    layouts: Layouts
    engine: GenerationLayouts
    recompute: str
    packed: int
    """Sequences that fill a micro-batch."""
    padded_tokens: int
    """Tokens of the batch, every sequence padded to the longest."""

    def _micro_batch_size(self, call: Call) -> IntArray:
        """Sequences of a micro-batch: as many as fill it, or all that a rank has."""
        ranks = int(self.layouts.data_parallel_size[0])
        each = call.num_sequences // (max(call.num_updates, 1) * ranks)
        return column(max(min(self.packed, each), 1))

    @property
    def pricing(self) -> Pricing:
        """The planner's prices of the job."""
        return Pricing(self.job)

    def _calls(self, kind: str) -> list[Call]:
        return [call for call in self.job.dataflow.calls if call.kind == kind and call.model]

    @property
    def num_calls(self) -> int:
        """Calls of models in an iteration, each of which is handed the batch."""
        return sum(call.model is not None for call in self.job.dataflow.calls)

    def handover_seconds(self, system: RlSystem, *, calls: int) -> float:
        """Seconds in which the framework's driver hands the batch to so many calls."""
        return calls * system.handover_seconds(self.padded_tokens)

    def generation_seconds(self, *, from_home: bool) -> float:
        """Seconds to generate the iteration's responses; with `from_home` the reshard as well."""
        (call,) = self._calls("generate")
        cache = self._kv_cache_bytes(call)
        price = self.pricing
        if from_home:
            found = price.generate_from_home(
                call, self.pool, self.layouts, self.engine, kv_cache_bytes=cache
            )
        else:
            found = price.generate(call, self.pool, self.engine, kv_cache_bytes=cache)
        return float(found.seconds.total[0])

    def _kv_cache_bytes(self, call: Call) -> IntArray:
        """Cache with which no sequence waits, or all that fits beside the engine's weights."""
        replicas = int(self.engine.data_parallel_size[0])
        model, workload = self.job.models["actor"], self.pricing.workload
        server = Server(model, self.pool, self.engine, workload, replicas)
        full = self.pricing.kv_cache_limits(call, self.engine)[1]
        return np.minimum(full, cache_room(server))

    def log_prob_seconds(self) -> dict[str, float]:
        """Seconds of log-probabilities of each model that scores, by role."""
        found = {}
        for call in self._calls("forward"):
            micro = self._micro_batch_size(call)
            priced = self.pricing.forward(call, self.pool, self.layouts, micro_batch_size=micro)
            found[f"{call.role}.forward_seconds"] = float(priced.seconds.total[0])
        return found

    def training_seconds(self) -> float:
        """Seconds of all optimizer steps of the iteration."""
        (call,) = self._calls("train")
        priced = self.pricing.train(
            call,
            self.pool,
            self.layouts,
            micro_batch_size=self._micro_batch_size(call),
            recompute=column(RECOMPUTES.index(self.recompute)),
        )
        return float(priced.seconds.total[0])

    def weight_sync_seconds(self) -> float:
        """Seconds to send weights from the training GPUs to those that generate."""
        sent = self.pricing.send_seconds("actor", self.pool, self.layouts)
        received = self.pricing.receive_seconds("actor", self.pool, self.engine.layouts())
        return max(float(sent[0]), float(received[0]))

    def state_seconds(self, bytes_per_second: float | None) -> float:
        """Seconds to move a GPU's training state to the host and back; None: at the pinned rate."""
        held = self.pricing.home_bytes("actor", self.pool, self.layouts).resident
        state = sum(getattr(held, name) for name in STATE)
        if bytes_per_second is None:
            return 2.0 * float(reload_seconds(state, self.pool)[0])
        return 2.0 * float(state[0]) / bytes_per_second
