"""Whole layers measured in an engine, beside the sum of their operators.

An operator that is timed alone, over and over, finds its operands and results in the caches; in a
layer each operator finds what the one before has left, in memory just allocated, and the time
between operators is counted nowhere. So a profile measures some layers end to end. They validate
it, and where it has them, layers are priced as the sum of their operators times the ratio of
measured to summed seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Literal, get_args

import numpy as np

from automap.planner.catalogue import node_type
from automap.planner.catalogue.architecture import ModelArchitecture
from automap.planner.catalogue.hardware import GpuType, Pool
from automap.planner.catalogue.layer_kinds import Mlp
from automap.planner.cost.batches import SequenceLengths
from automap.planner.cost.layer.transformer_layer import (
    KernelContext,
    MicroBatch,
    UnitSeconds,
    dense_layer_seconds,
)
from automap.planner.cost.operators.profile import Profile
from automap.planner.cost.stacks import STACKS
from automap.planner.cost.training.optimizer_step import optimizer_traffic_bytes
from automap.planner.job.job import Model
from automap.planner.spec import TrainingStack, WorkloadSpec

Recompute = Literal["none", "selective", "full"]
Part = Literal["forward", "training"]
FRAMEWORKS: tuple[TrainingStack, ...] = ("megatron-core", "fsdp")
MEASURED_OF: dict[TrainingStack, TrainingStack] = {"fsdp": "transformers"}
"""Framework of a table → the stack whose modules were timed, where it is not of that name."""
PRECISIONS = ("fp32", "bf16")
"""Precisions in which layers are measured: fp32 on a CPU, bf16 on a GPU."""


@dataclass(frozen=True, slots=True)
class LayerKey:
    """Identity of a measurement: one more layer of a model in one pass over one micro-batch."""

    framework: TrainingStack
    recompute: Recompute
    part: Part
    """What was timed: `forward`, or `training`, which is forward, backward and the optimizer step
    of the layer's weights."""
    precision: str
    num_sequences: int
    sequence_length: int
    sizes: tuple[tuple[str, int], ...]
    """Sizes of the layer by name: hidden_size, intermediate_size and those of attention."""

    @property
    def micro_batch(self) -> tuple[object, ...]:
        """Key that is equal for measurements of one layer with one micro-batch."""
        return self.num_sequences, self.sequence_length, self.sizes


@dataclass(frozen=True, slots=True)
class LayerSum:
    """Seconds of a layer as the sum of its operators and host work in a profile."""

    forward: float
    backward: float
    again: float
    """Seconds of forward work that recomputation repeats."""
    step: float
    """Seconds of the optimizer step of its weights."""
    host: float
    """Seconds that the host takes in all of these, beside the kernels."""

    def seconds(self, part: Part, *, forward: float = 1.0, backward: float = 1.0) -> float:
        """Seconds of `forward` or `training`, with a factor on each pass."""
        there = self.forward * forward
        if part == "forward":
            return there
        return there + self.backward * backward + self.again * forward + self.step


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """A measured layer beside what the profile's operators give for it, in seconds."""

    key: LayerKey
    measured: float
    summed: float
    """Seconds by operators and host work: their sum, or on a GPU the longer of the two."""
    host: float
    priced: float
    """Seconds at which plans price it: the sum times the ratio of the framework's layers."""

    @property
    def error(self) -> float:
        """Relative error of the sum of operators: summed ÷ measured − 1."""
        return self.summed / self.measured - 1.0


@dataclass(frozen=True, slots=True)
class Ratios:
    """Measured over summed seconds of a framework's layers: medians over the layers measured."""

    forward: float = 1.0
    backward: float = 1.0


def layer_checks(profile: Profile) -> Iterator[LayerCheck]:
    """Compare every layer that the profile has measured with the sum of its operators."""
    for framework in FRAMEWORKS:
        for precision in PRECISIONS:
            ratios = _ratios(profile, framework, precision)
            for recompute in get_args(Recompute):
                for part in get_args(Part):
                    rows = _measured(profile, framework, recompute, part, precision)
                    for key, measured in rows.items():
                        found = _sum(profile, key)
                        factors = {"forward": ratios.forward, "backward": ratios.backward}
                        yield LayerCheck(
                            key=key,
                            measured=measured,
                            summed=found.seconds(part),
                            host=found.host,
                            priced=found.seconds(part, **factors),
                        )


def priced_layer_seconds(
    context: KernelContext, batch: MicroBatch, mlp: Mlp = "dense"
) -> UnitSeconds:
    """Seconds of a layer without experts: its operators' sum, corrected where some were measured.

    The correction is that of whole dense layers.
    """
    summed = dense_layer_seconds(context, batch, mlp)
    if not context.profile.measured_here:
        return summed
    ratios = _ratios(context.profile, context.stack.host_work, context.precision)
    return UnitSeconds(
        forward=summed.forward * ratios.forward,
        backward=summed.backward * ratios.backward,
        selective=summed.selective * ratios.forward,
        forward_communication=summed.forward_communication,
        backward_communication=summed.backward_communication,
        selective_communication=summed.selective_communication,
        source=summed.source,
    )


def layer_architecture(sizes: dict[str, int], *, num_layers: int = 1) -> ModelArchitecture:
    """Architecture of a model of such layers, with embedding and head as small as they can be."""
    return ModelArchitecture.model_validate(
        {"num_layers": num_layers, "vocab_size": 256, "max_position_embeddings": 65_536, **sizes}
    )


@lru_cache(maxsize=64)
def _ratios(profile: Profile, framework: TrainingStack, precision: str) -> Ratios:
    """Ratios of a framework's layers; 1 where none was measured."""
    # Medians, because a single layer may have been disturbed while it was measured.
    forward = _measured(profile, framework, "none", "forward", precision)
    training = {
        key.micro_batch: measured
        for key, measured in _measured(profile, framework, "none", "training", precision).items()
    }
    there, back = [], []
    for key, measured in forward.items():
        summed = _sum(profile, key)
        there.append(measured / summed.forward)
        both = training.get(key.micro_batch)
        if both is not None and both - measured > summed.step:
            back.append((both - measured - summed.step) / summed.backward)
    return Ratios(median(there) if there else 1.0, median(back) if back else 1.0)


def _measured(
    profile: Profile, framework: TrainingStack, recompute: Recompute, part: Part, precision: str
) -> dict[LayerKey, float]:
    if profile.tables is None:
        return {}
    table = profile.tables.layers(framework, recompute, part, precision)
    found: dict[LayerKey, float] = {}
    for row, seconds in enumerate(table["seconds"]):
        sizes = {name: int(column[row]) for name, column in table.items() if name != "seconds"}
        sequences, length = sizes.pop("num_sequences"), sizes.pop("sequence_length")
        own = tuple(sizes.items())
        key = LayerKey(framework, recompute, part, precision, sequences, length, own)
        found[key] = float(seconds)
    return found


def _sum(profile: Profile, key: LayerKey) -> LayerSum:
    """Sum the operators of a layer alone on one device."""
    architecture = layer_architecture(dict(key.sizes))
    length = key.sequence_length
    context = KernelContext(
        Model("layer", architecture, scalar_head=False, trainable=True, lora_rank=None),
        _one_device(profile.gpu),
        profile,
        key.precision,
        SequenceLengths(np.array([float(length)]), np.ones(1), length),
        stack=STACKS[MEASURED_OF.get(key.framework, key.framework)],
    )
    one, sequences = np.ones(1, dtype=np.int64), np.array([key.num_sequences])
    found = dense_layer_seconds(context, MicroBatch(one, one, one, sequences, sequences * length))
    forward, backward = float(found.forward[0]), float(found.backward[0])
    work = context.host_work
    there = float(np.max(work.forward.seconds(sequences)))
    back = float(np.max(work.backward.seconds(sequences)))
    update = float(profile.memory_bound(_step_bytes(key, architecture)).seconds)
    training = key.part == "training"
    repeated = {"none": 0.0, "selective": float(found.selective[0]), "full": forward}
    return LayerSum(
        forward=forward,
        backward=backward,
        again=repeated[key.recompute],
        step=update + work.step.layer,
        host=there * (2 if key.recompute == "full" else 1) + back + work.step.layer
        if training
        else there,
    )


def _step_bytes(key: LayerKey, arch: ModelArchitecture) -> int:
    """Bytes that an optimizer step moves for a layer's weights."""
    workload = WorkloadSpec.model_validate(
        {
            "prompts_per_iteration": 1,
            "prompt_length": {"mean": 1, "max": 1},
            "response_length": {"mean": 1, "max": 1},
            "precision": key.precision,
            "training_stack": key.framework,
        }
    )
    return optimizer_traffic_bytes(workload) * arch.dense_layer_parameters


def _one_device(gpu: GpuType) -> Pool:
    """A pool of one GPU; nothing leaves it, so its links do not matter."""
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
