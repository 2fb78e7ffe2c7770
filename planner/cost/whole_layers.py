"""Whole layers measured in an engine, beside the sum of their operators.

An operator timed by itself, over and over, finds operands and results where it left them; in a
layer each finds what the one before has left, in memory just asked for, and what stands between
operators is nobody's. So a profile measures some layers end to end. They validate it, and where it
has them, layers are priced as the sum times what a measured layer takes of its sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from planner.architecture import ModelArchitecture
from planner.catalogue import node_type
from planner.cluster import GpuType, Pool
from planner.cost.batches import SequenceLengths
from planner.cost.layer import MicroBatch, Setting, UnitSeconds, dense_layer_seconds
from planner.cost.optimizer_step import optimizer_traffic_bytes
from planner.cost.profile import Profile
from planner.cost.stacks import STACKS
from planner.job import Model
from planner.layout import FloatArray
from planner.spec import TrainingStack, WorkloadSpec

Recompute = Literal["none", "selective", "full"]
Part = Literal["forward", "training"]
FRAMEWORKS: tuple[TrainingStack, ...] = ("megatron-core", "fsdp")
FEWEST_FOR_A_SLOPE = 3
"""Layers from which the ratio may depend on how long they are."""


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """One layer that was measured, and what the operators of the same profile add up to."""

    framework: TrainingStack
    recompute: Recompute
    part: Part
    """Training: forward, backward and the optimizer step of its weights."""
    precision: str
    num_sequences: int
    sequence_length: int
    hidden_size: int
    measured: float
    operators: float
    """Seconds of its kernels."""
    host: float
    """Seconds of the host beside them, by the table of host work."""
    summed: float
    """What both add up to: the sum, or on a GPU the longer of the two."""

    @property
    def error(self) -> float:
        """Of the sum, over what was measured."""
        return self.summed / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """Measured over summed seconds of layers: exp(level + slope · ln(summed)), within bounds."""

    level: float = 0.0
    slope: float = 0.0
    low: float = 0.0
    high: float = 0.0
    """Of the logarithm: no measured layer lies beyond."""

    def at(self, summed: FloatArray) -> FloatArray:
        """Of layers of so many seconds."""
        line = self.level + self.slope * np.log(np.maximum(summed, 1e-9))
        return np.asarray(np.exp(np.clip(line, self.low, self.high)), dtype=np.float64)

    @classmethod
    def of(cls, measured: Sequence[float], summed: Sequence[float]) -> "Ratio":
        """Least squares in the logarithms; a mean where there are few layers."""
        known = [(m, s) for m, s in zip(measured, summed, strict=True) if m > 0 and s > 0]
        if not known:
            return cls()
        seconds = np.log([s for _, s in known])
        logs = np.log([m / s for m, s in known])
        slope, level = 0.0, float(logs.mean())
        if len(set(seconds)) >= FEWEST_FOR_A_SLOPE:
            slope, level = (float(each) for each in np.polyfit(seconds, logs, 1))
        return cls(level, slope, float(logs.min()), float(logs.max()))


@dataclass(frozen=True, slots=True)
class Ratios:
    """Of both passes of a framework's layers."""

    forward: Ratio = Ratio()
    backward: Ratio = Ratio()


def layer_checks(profile: Profile) -> Iterator[LayerCheck]:
    """Every layer that the profile has measured."""
    for framework in FRAMEWORKS:
        for recompute in get_args(Recompute):
            for part in get_args(Part):
                for precision in ("fp32", "bf16"):
                    yield from _checks(profile, framework, recompute, part, precision)


def priced_layer_seconds(setting: Setting, batch: MicroBatch) -> UnitSeconds:
    """A dense layer's operators, as they take together where the profile knows that."""
    summed = dense_layer_seconds(setting, batch)
    if not setting.profile.measured_here:
        return summed
    ratios = _ratios(setting.profile, setting.stack.host_work, setting.precision)
    forward = ratios.forward.at(summed.forward)
    return UnitSeconds(
        forward=summed.forward * forward,
        backward=summed.backward * ratios.backward.at(summed.backward),
        selective=summed.selective * forward,
        forward_communication=summed.forward_communication,
        backward_communication=summed.backward_communication,
        source=summed.source,
    )


@lru_cache(maxsize=64)
def _ratios(profile: Profile, framework: TrainingStack, precision: str) -> Ratios:
    forward = list(_checks(profile, framework, "none", "forward", precision))
    training = {
        (each.num_sequences, each.sequence_length, each.hidden_size): each
        for each in _checks(profile, framework, "none", "training", precision)
    }
    pairs = [
        (each, both)
        for each in forward
        if (both := training.get((each.num_sequences, each.sequence_length, each.hidden_size)))
    ]
    return Ratios(
        Ratio.of([each.measured for each in forward], [each.summed for each in forward]),
        Ratio.of(
            [both.measured - each.measured for each, both in pairs],
            [both.summed - each.summed for each, both in pairs],
        ),
    )


def _checks(
    profile: Profile, framework: TrainingStack, recompute: Recompute, part: Part, precision: str
) -> Iterator[LayerCheck]:
    if profile.tables is None:
        return
    table = profile.tables.layers(framework, recompute, part, precision)
    for row in range(len(table["seconds"])):
        sizes = {name: int(column[row]) for name, column in table.items() if name != "seconds"}
        sequences, length = sizes.pop("num_sequences"), sizes.pop("sequence_length")
        architecture = layer_architecture(sizes)
        operators, host, summed = _summed(
            profile, framework, recompute, part, precision, sequences, length, architecture
        )
        yield LayerCheck(
            framework=framework,
            recompute=recompute,
            part=part,
            precision=precision,
            num_sequences=sequences,
            sequence_length=length,
            hidden_size=sizes["hidden_size"],
            measured=float(table["seconds"][row]),
            operators=operators,
            host=host,
            summed=summed,
        )


def layer_architecture(sizes: dict[str, int], *, num_layers: int = 1) -> ModelArchitecture:
    """A model of such layers; what stands before and after them is as small as it can be."""
    return ModelArchitecture.model_validate(
        {"num_layers": num_layers, "vocab_size": 256, "max_position_embeddings": 65_536, **sizes}
    )


def _summed(
    profile: Profile,
    framework: TrainingStack,
    recompute: Recompute,
    part: Part,
    precision: str,
    sequences: int,
    length: int,
    architecture: ModelArchitecture,
) -> tuple[float, float, float]:
    """(kernels, host, both as they are priced) of one layer in one pass."""
    lengths = SequenceLengths(np.array([float(length)]), np.ones(1), length)
    setting = Setting(
        Model("layer", architecture, False, trainable=True, lora_rank=None),
        _one_device(profile.gpu),
        profile,
        precision,
        lengths,
        stack=STACKS[framework],
    )
    one, many = np.ones(1, dtype=np.int64), np.array([sequences])
    found = dense_layer_seconds(setting, MicroBatch(one, one, one, many, many * length))
    work = setting.host_work
    forward, backward = float(found.forward[0]), float(found.backward[0])
    host_forward = float(np.max(work.forward.seconds(many)))
    host_backward = float(np.max(work.backward.seconds(many)))
    if part == "forward":
        kernels = forward if work.beside_kernels else forward - host_forward
        return kernels, host_forward, forward
    again = {"none": 0.0, "selective": float(found.selective[0]), "full": forward}[recompute]
    step = float(profile.memory_bound(_step_bytes(framework, precision, architecture)).seconds)
    summed = forward + backward + again + step + work.step.layer
    host = host_forward * (2 if recompute == "full" else 1) + host_backward + work.step.layer
    return (summed if work.beside_kernels else summed - host), host, summed


def _step_bytes(framework: TrainingStack, precision: str, arch: ModelArchitecture) -> int:
    """What the optimizer step moves for a layer's weights."""
    workload = WorkloadSpec.model_validate(
        {
            "prompts_per_iteration": 1,
            "prompt_length": {"mean": 1, "max": 1},
            "response_length": {"mean": 1, "max": 1},
            "precision": precision,
            "training_stack": framework,
        }
    )
    return optimizer_traffic_bytes(workload) * arch.dense_layer_parameters


def _one_device(gpu: GpuType) -> Pool:
    """Nothing leaves it, so its links do not matter."""
    node = node_type(gpu.node)
    return Pool(
        name=gpu.name,
        gpu=gpu,
        num_nodes=1,
        gpus_per_node=1,
        first_gpu=0,
        nvlink_domain_gpus=1,
        intra_node_bytes_per_second=node.intra_node_bytes_per_second,
        inter_node_bytes_per_second=node.inter_node_bytes_per_second,
        host_memory_bytes=node.host_memory_bytes,
        host_link_bytes_per_second=node.host_link_bytes_per_second,
        price_per_gpu_hour=node.price_per_gpu_hour,
    )
