"""Layouts and call settings as columns: one row is one candidate, priced all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SHARDINGS = ("none", "optimizer", "gradient", "full")
RECOMPUTES = ("none", "selective", "full")
RangeRelation = Literal["any", "nested", "equal"]
"""How the GPU ranges of two copies may share GPUs: in any way; only if one lies inside the other;
only if they are one and the same."""
OFFLOADS = ("none", "optimizer", "weights")
"""What a home keeps on the host between calls: nothing; optimizer state (gradients are
freed, being zero); weights too. A copy that does not train has `none` and `weights`."""
SOURCES = ("measured", "interpolated", "analytical")
"""Provenance of an estimate, strongest first: the weakest wins when summed (the maximum code)."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """How a model lies on `num_gpus` GPUs, one row each; codes index SHARDINGS and OFFLOADS.

    num_gpus = tensor × pipeline × context × data; expert groups lie inside tensor × context × data.
    Ranks run tensor first, then context, then data, then pipeline (Megatron's order), so a tensor
    group is consecutive and pipeline stages are farthest apart.
    """

    num_gpus: IntArray
    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    virtual_pipeline_parallel_size: IntArray
    context_parallel_size: IntArray
    data_parallel_size: IntArray
    expert_parallel_size: IntArray
    sharding: IntArray
    offload: IntArray

    def __len__(self) -> int:
        return len(self.num_gpus)

    def take(self, rows: IntArray) -> "Layouts":
        """The given rows, in that order."""
        return Layouts(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def columns_without_offload(self) -> "list[IntArray]":
        """All columns but `offload`: how a model is split, wherever its state is kept."""
        return [getattr(self, name) for name in self.__dataclass_fields__ if name != "offload"]

    def without_offload(self) -> "Layouts":
        """These layouts with all state on the GPU."""
        return replace(self, offload=np.zeros_like(self.offload))


@dataclass(frozen=True, slots=True)
class GenerationLayouts:
    """Generation layouts as columns, one row each."""

    tensor_parallel_size: IntArray
    pipeline_parallel_size: IntArray
    expert_parallel_size: IntArray
    data_parallel_size: IntArray

    def columns(self) -> Mapping[str, IntArray]:
        """The columns by name; the names are those of plan.types.Parallelism."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def take(self, rows: IntArray) -> "GenerationLayouts":
        """The given rows, in that order."""
        return GenerationLayouts(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def layouts(self) -> Layouts:
        """Layouts of copies that are stored the way they generate."""
        one = np.ones_like(self.tensor_parallel_size)
        sizes = (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size)
        return Layouts(
            num_gpus=sizes[0] * sizes[1] * sizes[2],
            tensor_parallel_size=sizes[0],
            pipeline_parallel_size=sizes[1],
            virtual_pipeline_parallel_size=one,
            context_parallel_size=one,
            data_parallel_size=sizes[2],
            expert_parallel_size=self.expert_parallel_size,
            sharding=0 * one,
            offload=0 * one,
        )

    @staticmethod
    def joined(parts: Sequence["GenerationLayouts"]) -> "GenerationLayouts":
        """The rows of several sets of columns, one set after the other."""
        names = GenerationLayouts.__dataclass_fields__
        return GenerationLayouts(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
        )

    @staticmethod
    def of(layouts: Layouts) -> "GenerationLayouts":
        """Generation layouts of copies that are stored the way they generate."""
        return GenerationLayouts(
            layouts.tensor_parallel_size,
            layouts.pipeline_parallel_size,
            layouts.expert_parallel_size,
            layouts.data_parallel_size,
        )


def layers_per_stage(num_layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, in order: equally many on all but the first and the last.

    No stage has more than ⌈L ÷ p⌉, and the ends, which hold embedding and head, share what the
    others leave, the first the larger half. So Megatron can be told of the first and the last
    stage alone (num_layers_in_first_pipeline_stage). Where that would leave an end without a layer,
    stages have ⌊L ÷ p⌋, and one more middle ones from the last on (1F1B keeps the fewest
    micro-batches there).

    Raises:
        ValueError: there are more stages than layers.
    """
    if not 1 <= stages <= num_layers:
        raise ValueError(f"{num_layers} layers cannot be cut into {stages} pipeline stages")
    least, over = divmod(num_layers, stages)
    longest = least + (over > 0)
    ends = num_layers - longest * (stages - 2)
    if stages > 1 and ends > 1:
        return (ends - ends // 2, *[longest] * (stages - 2), ends // 2)
    longer = range(stages - 2, 0, -1)[:over]
    return tuple(least + (stage in longer) for stage in range(stages))
