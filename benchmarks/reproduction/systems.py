"""The systems that papers compare: how each places a job, and as which software it is priced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from automap.planner.search.candidates.tables import Tables
from automap.planner.search.space.rows import Rows
from automap.planner.spec import TrainingStack
from benchmarks.reproduction.cases import Case
from benchmarks.reproduction.jobs import job
from benchmarks.reproduction.layouts import three_d


@dataclass(frozen=True)
class System:
    """One system."""

    title: str
    strategy: str
    training_stack: TrainingStack
    why: str
    layouts: Callable[[Tables], Rows] | None = None

    def case(
        self,
        algorithm: str,
        models: Mapping[str, Any],
        num_gpus: int,
        *,
        workload: Mapping[str, Any],
        gpu: str = "a100-80gb-sxm",
        allow_offload: bool = False,
    ) -> Case:
        """The job, placed and priced as this system would."""
        spec = job(
            algorithm,
            models,
            num_gpus,
            workload={**workload, "training_stack": self.training_stack},
            gpu=gpu,
            constraints={"allow_offload": allow_offload},
        )
        return Case(spec, (self.strategy,), self.layouts)


SYSTEMS = {
    "hybridflow": System(
        "HybridFlow",
        "hybridflow",
        "megatron-core",
        "Megatron-core trains and scores; placements by its Algorithms 1 and 2",
        three_d,
    ),
    "deepspeed_chat": System(
        "DeepSpeed-Chat",
        "deepspeed_chat",
        "fsdp-eager",
        "ZeRO-3 and no compiler, as PyTorch's eager fully sharded data parallelism",
    ),
    "openrlhf": System(
        "OpenRLHF",
        "openrlhf",
        "fsdp-eager",
        "DeepSpeed's ZeRO-3 trains, as above; vLLM generates",
    ),
    "nemo_aligner": System(
        "NeMo-Aligner",
        "nemo_aligner",
        "megatron-core",
        "Megatron-core trains and generates with the same sizes",
    ),
}
BASELINES = tuple(name for name in SYSTEMS if name != "hybridflow")
