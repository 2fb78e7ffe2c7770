"""The published values, typed; `published.toml` says where each stands."""

import tomllib
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

FILE = Path(__file__).parent / "published.toml"


class Fact(BaseModel):
    """Frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hardware(Fact):
    """What a study says of its machines and software, and what it leaves open."""

    gpu: str
    """Name in the catalogue."""
    inter_node_bytes_per_second: float | None = None
    """Bytes per second and GPU; None where the study does not say, or needs one node only."""
    stated: str
    unstated: str


class Best(Fact):
    """The fastest placement of a model on a range of cluster sizes."""

    model: str
    from_gpus: int
    to_gpus: int
    way: str


class PlacementFacts(Fact):
    source: str
    best: list[Best]
    standalone_13b_128: dict[str, int]


class UnequalFacts(Fact):
    source: str
    best: list[Best]
    colocate_gain: float
    sets_128: list[list[str]]
    set_gpus_128: int


class GenerationFacts(Fact):
    source: str
    best_tensor_size: dict[str, int]
    saving: dict[str, float]
    """Of generation's seconds, over the tensor size of training."""


class TransitionFacts(Fact):
    source: str
    training_tensor_size: dict[str, int]
    training_pipeline_size: dict[str, int]
    generation_tensor_size: dict[str, int]
    mean_saving: float
    mean_saved_seconds: float
    largest_saving: float
    largest_saved_seconds: float
    saving_over: dict[str, float]
    """The largest, by system."""
    bytes_70b: float
    largest_share: float
    """Of an iteration, where training and generation are on different GPUs."""


class SpeedUp(Fact):
    algorithm: str
    model: str
    least: float
    most: float


class Over(Fact):
    """Speed-up of PPO over one system."""

    system: str
    mean: float
    most: float


class BestOther(Fact):
    """The fastest of the other systems on one cluster, and HybridFlow's speed-up over it."""

    model: str
    num_gpus: int
    system: str
    speed_up: dict[str, float]
    """By algorithm."""


class SystemsFacts(Fact):
    source: str
    speed_up: list[SpeedUp]
    over: list[Over]
    best_other: BestOther
    largest_mean_model: str
    largest_mean: float
    scaling_efficiency: float
    nemo_generation_share: float
    actor_share: float


class HybridFlow(Fact):
    paper: str
    setting: str
    hardware: Hardware
    placement: PlacementFacts
    unequal: UnequalFacts
    generation: GenerationFacts
    transition: TransitionFacts
    systems: SystemsFacts


class ChatRow(Fact):
    model: str
    num_gpus: int
    iteration_seconds: float


class DeepSpeedChat(Fact):
    paper: str
    setting: str
    hardware: Hardware
    source: str
    rows: list[ChatRow]


class App(Fact):
    paper: str
    setting: str
    hardware: Hardware
    source: str
    largest_gain: float


class RealRow(Fact):
    system: str
    model: str
    num_gpus: int
    response_tokens: int
    relative: float


class WholeRun(Fact):
    source: str
    hours: dict[str, float]


class Real(Fact):
    paper: str
    setting: str
    hardware: Hardware
    source: str
    rows: list[RealRow]
    whole_run: WholeRun


class Published(Fact):
    """Everything the document compares with."""

    hybridflow: HybridFlow
    deepspeed_chat: DeepSpeedChat
    app: App
    real: Real


def best_at(best: list[Best], model: str, num_gpus: int) -> str | None:
    """Which placement was the fastest there; None where the paper does not say."""
    fitting = (e for e in best if e.model == model and e.from_gpus <= num_gpus <= e.to_gpus)
    return next((each.way for each in fitting), None)


@lru_cache
def published() -> Published:
    """The values of the file."""
    return Published.model_validate(tomllib.loads(FILE.read_text()))
