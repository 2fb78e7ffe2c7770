"""The systems that papers compare: how each places a job, and as which software it is priced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from automap.planner.cost.rollout_engines import ENGINES, EngineProfile
from automap.planner.spec import TrainingStack
from benchmarks.reproduction import software
from benchmarks.reproduction.cases import Case
from benchmarks.reproduction.jobs import job
from benchmarks.reproduction.layouts import Reduction, as_stated
from benchmarks.reproduction.published import Hardware


@dataclass(frozen=True)
class System:
    """One system."""

    title: str
    strategy: str
    training_stack: TrainingStack
    engine: EngineProfile | None
    """What generates; None: the vLLM of today, where its own code could not be read."""
    why: str
    old_log_probs: str = "recompute"
    """Where the old policy's log-probabilities come from. DeepSpeed-Chat (ppo_trainer.py:
    generate_experience), OpenRLHF (experience_maker.py) and NeMo-Aligner 0.2.0
    (megatron_gpt_ppo_actor.py: infer) have the actor score its rollouts."""
    layouts: Callable[[Mapping[str, Any]], Reduction] | None = None
    """Which layouts it may use, by the models of the roles."""

    @property
    def generates_as(self) -> str:
        """The engine in words."""
        return (self.engine or ENGINES["vllm"]).summary

    def case(
        self,
        algorithm: str,
        models: Mapping[str, Any],
        num_gpus: int,
        *,
        workload: Mapping[str, Any],
        hardware: Hardware,
        allow_offload: bool = False,
    ) -> Case:
        """The job, placed and priced as this system would."""
        spec = job(
            algorithm,
            models,
            num_gpus,
            workload={
                **workload,
                "training_stack": self.training_stack,
                "old_log_probs": self.old_log_probs,
            },
            hardware=hardware,
            constraints={"allow_offload": allow_offload},
        )
        reduction = None if self.layouts is None else self.layouts(models)
        return Case(spec, (self.strategy,), reduction, self.engine)


SYSTEMS = {
    "hybridflow": System(
        "HybridFlow",
        "hybridflow",
        "verl-megatron",
        software.HYBRIDFLOW,
        "Megatron-core trains and scores, as in verl, which it became; its Algorithms place",
        # Section 4 of the paper, Table 4: generate_sequence returns them, compute_log_prob is
        # optional in PPO.
        old_log_probs="rollout",
        layouts=as_stated,
    ),
    "deepspeed_chat": System(
        "DeepSpeed-Chat",
        "deepspeed_chat",
        "fsdp-eager",
        software.DEEPSPEED_CHAT,
        "ZeRO-3 and no compiler, as PyTorch's eager fully sharded data parallelism",
    ),
    "openrlhf": System(
        "OpenRLHF",
        "openrlhf",
        "fsdp-eager",
        software.OPENRLHF,
        "DeepSpeed's ZeRO-3 trains, as above; vLLM generates",
    ),
    "nemo_aligner": System(
        "NeMo-Aligner",
        "nemo_aligner",
        "megatron-core",
        software.NEMO_ALIGNER,
        "Megatron-core trains and generates with the same sizes, those stated for training",
        layouts=as_stated,
    ),
}
BASELINES = tuple(name for name in SYSTEMS if name != "hybridflow")
